"""How a run came to its score: dev scores and losses, and which layers learned when.

Everything is in the run's record.
"""

from __future__ import annotations

from dataclasses import dataclass

from limbeck.records import Record


@dataclass(frozen=True)
class RunCourse:
    """A run, epoch by epoch, its stages after each other.

    Attributes:
        steps: optimisation steps at the end of each epoch, counted through all stages.
        epochs: the same in epochs.
        scores: primary dev score of each, 0 to 100; None where none was taken.
        terms: of each training term, `loss` being their sum, its mean over the epoch.
        learned: the student layer whose turn ended with an epoch, None for none; where layers have turns.
        metric: what the scores are.
    """

    steps: tuple[int, ...]
    epochs: tuple[int, ...]
    scores: tuple[float | None, ...]
    terms: dict[str, tuple[float | None, ...]]
    learned: tuple[int | None, ...]
    metric: str


def run_course(record: Record, metric: str = "primary dev score") -> RunCourse:
    """The course of a run, from its record (Aguilar et al. 2020, Figures 4 and 10).

    Raises:
        ValueError: no epoch was recorded.
    """
    if not record.epochs:
        raise ValueError("no epoch was recorded")
    lengths: dict[int, int] = {}
    for one in record.epochs:
        lengths[one.stage] = max(lengths.get(one.stage, 0), one.step)
    steps = [
        one.step + sum(length for stage, length in lengths.items() if stage < one.stage)
        for one in record.epochs
    ]
    names = dict.fromkeys(name for one in record.epochs for name in one.train)
    return RunCourse(
        tuple(steps),
        tuple(range(1, len(steps) + 1)),
        tuple(one.dev.get("primary") for one in record.epochs),
        {name: tuple(one.train.get(name) for one in record.epochs) for name in names},
        _learned(record),
        metric,
    )


def _learned(record: Record) -> tuple[int | None, ...]:
    """The newest layer of each epoch that is not the newest of the next one any more."""
    newest = [
        max((pair[0] for pairs in one.active_layers.values() for pair in pairs), default=None)
        for one in record.epochs
    ]
    # Where all layers learn together from the first epoch on, none has a turn.
    if len(set(newest)) == 1:
        return (None,) * len(newest)
    following = [*newest[1:], None]
    return tuple(
        layer if layer != after else None for layer, after in zip(newest, following, strict=True)
    )
