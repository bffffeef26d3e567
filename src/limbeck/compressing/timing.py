"""Latency and memory of models in turns, each for rows of its own length. Part of `limbeck.compressing`."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from limbeck.compressing.settings import CompressSettings
from limbeck.latency.benching import Turn, time_in_turns
from limbeck.latency.contenders import Contender
from limbeck.latency.report import BenchCondition
from limbeck.support.errors import LimbeckError

_PASSES, _WARM_UP, _MIB = 50, 10, 2**20


def timed(
    models: Sequence[tuple[Contender, int]], settings: CompressSettings
) -> list[tuple[float, float]]:
    """Milliseconds of a pass and bytes of memory of each model, for rows of this number of tokens.

    With one thread it is CPU time, which other programs do not slow down.

    Raises:
        LimbeckError: a model that does not run.
    """
    if not models:
        return []
    with TemporaryDirectory() as folder:
        turns = []
        # Models with rows of one length take turns.
        order = sorted(range(len(models)), key=lambda at: models[at][1])
        for at in order:
            who, tokens = models[at]
            condition = BenchCondition(
                batch=settings.batch, length=tokens, threads=settings.threads
            )
            turns.append(Turn.made(who, condition, Path(folder) / f"{at}.npz"))
        found = time_in_turns(turns, passes=_PASSES, warm_up=_WARM_UP, step=lambda _: None)
    times: list[tuple[float, float]] = [(0.0, 0.0)] * len(models)
    for at, one in zip(order, found, strict=True):
        if one.error or one.p50 is None:
            raise LimbeckError(
                f"{one.name} cannot be timed: {one.error}", "choose another precision"
            )
        alone = one.cpu_p50 if settings.threads == 1 and one.cpu_p50 else one.p50
        times[at] = alone, ((one.memory_mib or 0) + (one.mapped_mib or 0)) * _MIB
    return times
