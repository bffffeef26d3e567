"""`bench(models)`: latency, memory, load time and size of models side by side."""

import itertools
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.latency import report as reports
from limbeck.latency.cascades import cascade_lines
from limbeck.latency.contenders import Contender, contenders, inputs_of
from limbeck.latency.report import BenchCondition, BenchReport, Measurement
from limbeck.latency.settings import BenchSettings
from limbeck.latency.worker import BenchProcess
from limbeck.records import hardware, versions
from limbeck.records.facts import busy_note
from limbeck.run.finish import refresh
from limbeck.support import files, terminal, words
from limbeck.support.cores import check_threads
from limbeck.support.positions import positions_by_config

_LIBRARIES = ("onnxruntime", "openvino")


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
        models: run folders (each for its student and its exported models), checkpoints'
            folders or Hub names, exported folders.
        settings: the measurements to make.
        out: a folder for `bench.json` and `bench.md`.
        show: print progress on standard error.

    Example:
        ```python
        limbeck.bench(["runs/teacher", "runs/student"], out="bench")
        ```

    Raises:
        LimbeckError: settings that cannot be, a model that cannot be read, a backend that is not
            installed or that no model runs on.
    """
    chosen = settings or BenchSettings.checked({})
    check_threads(chosen.threads)
    named = [str(model) for model in models]
    who = contenders(named, chosen.backends)
    if "lengths" not in chosen.model_fields_set:
        limits = (positions_by_config(one.config.get_text_config()) for one in who)
        most = min(filter(None, limits), default=max(chosen.lengths))
        lengths = tuple(dict.fromkeys(min(length, most) for length in chosen.lengths))
        chosen = chosen.model_copy(update={"lengths": lengths})
    found: list[Measurement] = []
    with tempfile.TemporaryDirectory() as folder, terminal.phases(shown=show) as begin:
        for threads in chosen.threads:
            turns = _turns(who, chosen, threads, Path(folder))
            rounds = 1 + -(-chosen.passes // PASSES_A_TURN)
            step = begin(words.count_of(threads, "thread"), len(turns) * rounds)
            found += time_in_turns(turns, passes=chosen.passes, warm_up=chosen.warm_up, step=step)
        lines = cascade_lines(named, who, found)
    report = BenchReport(
        identity=uuid.uuid4().hex[:12],
        when=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        passes=chosen.passes,
        measurements=found,
        machine=hardware(),
        versions=versions(*_LIBRARIES),
        notes=[*lines, *_notes(found)],
    )
    for run in reports.keep_in_records(report, who):
        refresh(run)
    if out is not None:
        place = files.at_home(out)
        files.write_whole(place / "bench.md", reports.as_markdown(report))
        report.write(place)
    return report


# Timing in turns: every model takes a turn in every round, and no round begins with the same one.
# A slow minute of the machine then slows all models alike, and a model's cache state comes from
# another neighbor each time.

_MIB = 2**20
PASSES_A_TURN = 5
"""Timed passes of a turn, after one that is not: the first finds another model's data in the caches."""


@dataclass(frozen=True)
class Turn:
    """One contender under one condition, with its inputs' file."""

    who: Contender
    condition: BenchCondition
    inputs: Path

    @classmethod
    def made(cls, who: Contender, condition: BenchCondition, inputs: Path) -> "Turn":
        """Write a model's inputs under a condition, for the process that times it."""
        np.savez(inputs, **inputs_of(who, condition.batch, condition.length))  # type: ignore[arg-type]
        return cls(who, condition, inputs)


def _turns(
    who: Sequence[Contender], chosen: BenchSettings, threads: int, folder: Path
) -> list[Turn]:
    """Every contender under every condition with this many threads, and its inputs."""
    turns: list[Turn] = []
    for batch, length, one in itertools.product(chosen.batch_sizes, chosen.lengths, who):
        path = folder / f"inputs-{threads}-{len(turns)}.npz"
        condition = BenchCondition(batch=batch, length=length, threads=threads)
        turns.append(Turn.made(one, condition, path))
    return turns


def time_in_turns(
    turns: Sequence[Turn],
    *,
    passes: int,
    warm_up: int,
    step: Callable[[int], None],
    passes_a_turn: int = PASSES_A_TURN,
) -> list[Measurement]:
    """Measure all turns, which have the same number of threads; one process for each contender.

    Args:
        passes: timed passes of each; `warm_up`: passes before the first of them.
        step: called with 1 after each turn.
    """
    threads = turns[0].condition.threads
    # As many cores as threads, of those this process may use.
    affinity = getattr(os, "sched_getaffinity", None)
    own = None if affinity is None else sorted(affinity(0))[:threads]
    processes: dict[str, BenchProcess] = {}
    opened: dict[str, dict[str, Any]] = {}
    found = []
    try:
        for name, who in {turn.who.name: turn.who for turn in turns}.items():
            processes[name] = BenchProcess(threads)
            request = {"backend": who.backend, "path": who.path, "threads": threads}
            opened[name] = processes[name].ask(do="open", cores=own, **request)
        for _, group in itertools.groupby(turns, key=lambda turn: turn.condition.words):
            here = list(group)
            said: list[list[dict[str, Any]]] = [[] for _ in here]
            # The round before the first warms up.
            for number in range(-1, -(-passes // passes_a_turn)):
                count = warm_up if number < 0 else 1 + passes_a_turn
                for at in range(len(here)):
                    place = (max(number, 0) + at) % len(here)
                    process = processes[here[place].who.name]
                    said[place].append(
                        process.ask(do="run", inputs=here[place].inputs, passes=count)
                    )
                    step(1)
            for turn, replies in zip(here, said, strict=True):
                name = turn.who.name
                found.append(
                    _measurement(turn, opened[name], replies, processes[name].error, passes)
                )
        return found
    finally:
        for process in processes.values():
            process.close()


def _measurement(
    turn: Turn,
    opened: Mapping[str, Any],
    replies: Sequence[Mapping[str, Any]],
    error: str,
    passes: int,
) -> Measurement:
    who = turn.who
    held: Mapping[str, Any] = next((one for one in reversed(replies) if one), {})
    after, before = held.get("anonymous_bytes"), opened.get("bytes_before")
    mapped = held.get("mapped_bytes")
    made = Measurement(
        model=who.model,
        backend=who.backend,
        form=who.form,
        condition=turn.condition,
        load_seconds=opened.get("load_seconds"),
        cold_ms=replies[0]["ms"][0] if replies[0] else None,
        memory_mib=None if after is None or before is None else (after - before) / _MIB,
        mapped_mib=None if mapped is None else mapped / _MIB,
        disk_mib=who.bytes / _MIB,
        score=who.score,
        rows=who.rows,
        error=error,
    )
    if error:
        return made
    wall, cpu = ([ms for one in replies[1:] for ms in one[name][1:]] for name in ("ms", "cpu_ms"))
    return made.with_times(wall[:passes], cpu[:passes])


def _notes(found: Sequence[Measurement]) -> list[str]:
    """Notes that a reader needs before comparing."""
    notes = []
    rows = {one.rows for one in found if one.score is not None}
    if len(rows) > 1:
        notes.append("Scores were measured on different rows and are not to be compared.")
    unknown = sorted({one.model for one in found if one.score is None})
    if unknown and rows:
        notes.append(f"No score is known of {', '.join(unknown)}.")
    waited = max((one.waited or 0.0 for one in found), default=0.0)
    notes += [busy_note(waited)] if busy_note(waited) else []
    notes += sorted({f"{one.name}: {one.error}" for one in found if one.error})
    return notes
