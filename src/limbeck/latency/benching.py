"""`bench(models)`: latency, memory, load time and size of models side by side."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.activations.compat import TEXT_TO_TEXT
from limbeck.evaluation.measuring import decoder_start, random_batch
from limbeck.latency.contenders import Contender, contenders
from limbeck.latency.report import BenchCondition, BenchReport, Measurement, keep_in_records
from limbeck.latency.show import as_markdown, draw_plots
from limbeck.latency.turns import Turn, rounds_of, time_in_turns
from limbeck.records import hardware, versions
from limbeck.records.facts import BUSY
from limbeck.run.report import refresh
from limbeck.support.cores import cores
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home, write_whole
from limbeck.support.terminal import phases

_LIBRARIES = ("onnxruntime", "openvino")


@dataclass(frozen=True)
class BenchSettings:
    """What is measured.

    Attributes:
        batch_sizes: rows of a pass.
        lengths: tokens of a row.
        threads: numbers of threads, each pinned to as many cores.
        backends: by default torch for checkpoints, and what an exported folder is for.
        passes: timed passes of each model under each condition.
        warm_up: passes before them.
    """

    batch_sizes: Sequence[int] = (1,)
    lengths: Sequence[int] = (32, 128)
    threads: Sequence[int] = (1,)
    backends: Sequence[str] | None = None
    passes: int = 100
    warm_up: int = 10

    def check(self) -> None:
        """Raise LimbeckError with everything that is wrong."""
        limit = cores()
        many = [number for number in self.threads if limit is not None and number > limit]
        checks = [
            (self.passes < 5, f"passes {self.passes}", "give at least 5, or nothing is known"),
            (self.warm_up < 1, f"warm_up {self.warm_up}", "give at least 1"),
            (
                bool(many),
                f"threads {' '.join(map(str, many))}: there are not so many cores",
                f"give at most {limit}",
            ),
        ]
        for name in ("batch_sizes", "lengths", "threads"):
            values = getattr(self, name)
            wrong = not values or min(values) < 1 or len(set(values)) < len(values)
            said = f"{name} {' '.join(map(str, values))}"
            checks.append((wrong, said, "give numbers from 1 up, each once"))
        if problems := [Problem(said, fix) for wrong, said, fix in checks if wrong]:
            raise LimbeckError(problems)


def bench(
    models: Sequence[str | Path],
    settings: BenchSettings | None = None,
    *,
    out: str | Path | None = None,
    show: bool = False,
) -> BenchReport:
    """Time models in turns, each in a process of its own that holds nothing else.

    The records of runs that took part keep their times under the first condition, which tables of
    these runs then show.

    Args:
        models: run folders (each stands for its student and what was exported of it), checkpoints'
            folders or Hub names, exported folders.
        settings: what is measured.
        out: a folder for `bench.json`, `bench.md`, `latency.svg` and `score.svg`.
        show: print progress on standard error.

    Raises:
        LimbeckError: settings that cannot be, a model that cannot be read, a backend that is not
            installed or that no model runs on.
    """
    chosen = settings or BenchSettings()
    chosen.check()
    who = contenders([str(model) for model in models], chosen.backends)
    found: list[Measurement] = []
    with tempfile.TemporaryDirectory() as folder, phases(shown=show) as begin:
        turns = _turns(who, chosen, Path(folder))
        for threads in chosen.threads:
            own = [turn for turn in turns if turn.condition.threads == threads]
            step = begin(
                f"{threads} thread{'s' if threads > 1 else ''}",
                len(own) * (1 + rounds_of(chosen.passes)),
            )
            found += time_in_turns(
                own, threads=threads, passes=chosen.passes, warm_up=chosen.warm_up, step=step
            )
    report = BenchReport(
        identity=uuid.uuid4().hex[:12],
        when=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        passes=chosen.passes,
        measurements=found,
        machine=hardware(),
        versions=versions(*_LIBRARIES),
        notes=_notes(found),
    )
    for run in keep_in_records(report, who):
        refresh(run)
    if out is not None:
        place = at_home(out)
        write_whole(place / "bench.md", as_markdown(report))
        for name, drawing in draw_plots(report).items():
            write_whole(place / name, drawing)
        report.write(place)
    return report


def _turns(who: Sequence[Contender], chosen: BenchSettings, folder: Path) -> list[Turn]:
    """Every contender under every condition; inputs are written once for a model."""
    turns: list[Turn] = []
    for threads in chosen.threads:
        for batch in chosen.batch_sizes:
            for length in chosen.lengths:
                condition = BenchCondition(batch=batch, length=length, threads=threads)
                for one in who:
                    path = folder / f"inputs-{len(turns)}.npz"
                    np.savez(path, **inputs_of(one, batch, length))  # type: ignore[arg-type]
                    turns.append(Turn(one, condition, path))
    return turns


def _notes(found: Sequence[Measurement]) -> list[str]:
    """What a reader must know before comparing."""
    notes = []
    rows = {one.rows for one in found if one.score is not None}
    if len(rows) > 1:
        notes.append(
            "Scores were measured on different rows and are not to be compared; the plot of scores "
            "is left out."
        )
    unknown = sorted({one.model for one in found if one.score is None})
    if unknown and rows:
        notes.append(f"No score is known of {', '.join(unknown)}.")
    waited = max((one.waited or 0.0 for one in found), default=0.0)
    if waited > BUSY:
        notes.append(
            f"The machine was busy: passes waited for a core for up to {100 * waited:.0f} % of their time. "
            "Times by the clock say little; CPU ms does. Measure again when nothing else runs."
        )
    notes += sorted({f"{one.name}: {one.error}" for one in found if one.error})
    return notes


# What models read while they are timed: random token ids of one length, or random pixels. Every
# row is full, so that a length means what it says; a model's own vocabulary decides the ids.


_TEXT = ("input_ids", "attention_mask", "token_type_ids")


def inputs_of(one: Contender, batch: int, length: int) -> dict[str, np.ndarray]:
    """A batch for a contender: (batch, length) ids, mask and segments, or pixels.

    A text-to-text model's decoder gets its start token alone, so a pass is an answer's first token.

    Raises:
        LimbeckError: the model has fewer positions than `length`.
    """
    config = one.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    if isinstance(limit, int) and 0 < limit < length:
        raise LimbeckError(
            f"bench: {one.model} reads {limit} tokens, not {length}", "measure shorter lengths"
        )
    made = {name: one.numpy() for name, one in random_batch(config, length, batch).items()}
    if "pixel_values" in made:
        return made
    made["token_type_ids"] = np.zeros_like(made["input_ids"])
    made["decoder_input_ids"] = np.full((batch, 1), decoder_start(config), np.int64)
    return {name: made[name] for name in one.inputs or _read_by(config)}


def _read_by(config: Any) -> tuple[str, ...]:
    """What a checkpoint of this configuration reads."""
    if (
        getattr(config, "is_encoder_decoder", False)
        and {*(config.architectures or ())} & TEXT_TO_TEXT
    ):
        return (*_TEXT[:2], "decoder_input_ids")
    return _TEXT if getattr(config, "type_vocab_size", 0) > 1 else _TEXT[:2]
