"""The measured columns of a table: size, work, speed, share of the teacher's score kept. Part of `limbeck.tables`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from limbeck.records import Record
from limbeck.records.facts import ModelFacts
from limbeck.support.errors import LimbeckError, unknown
from limbeck.tables.cells import duration, magnitude, milliseconds
from limbeck.tables.model import Fact, place_of


@dataclass(frozen=True)
class FactColumn:
    """A column's heading, and how to read and print its value."""

    title: str
    text: Callable[[float], str]
    of_model: Callable[[ModelFacts], float | None] | None = None
    of_run: Callable[[Record], float | None] | None = None
    against: Callable[[Sequence[Record], Sequence[Record]], float | None] | None = None
    """Of a row's runs and of those of the baseline's row."""
    middle: bool = False
    """Of several runs the median and not the mean: one slow run says nothing about the model."""


def speedup(run: Record) -> float | None:
    """How many times as fast as its teacher a run's student is: the run has timed them in turns."""
    student = run.student.latency_ms
    teacher = None if run.teacher is None else run.teacher.latency_ms
    if student is None or teacher is None or not student.median:
        return None
    return teacher.median / student.median


def training_speedup(runs: Sequence[Record], baseline: Sequence[Record]) -> float | None:
    """How many times as fast as the baseline a row's runs were trained, over the tasks and seeds that both have."""
    own, other = (
        {(*place_of(run), run.seed): run.cost.total_seconds for run in some}
        for some in (runs, baseline)
    )
    pairs = [(own[key], other[key]) for key in own.keys() & other.keys()]
    timed = [(mine, theirs) for mine, theirs in pairs if mine and theirs]
    if not timed:
        return None
    return sum(theirs for _, theirs in timed) / sum(mine for mine, _ in timed)


FACTS: dict[str, FactColumn] = {
    "layers": FactColumn("layers", lambda v: f"{v:g}", lambda m: m.layers),
    "parameters": FactColumn("parameters", magnitude, lambda m: m.parameters),
    "embeddings": FactColumn("of them embeddings", magnitude, lambda m: m.embedding_parameters),
    "flops": FactColumn("FLOPs / example", magnitude, lambda m: m.flops_per_example),
    "flops-128": FactColumn("FLOPs at 128 tokens", magnitude, lambda m: m.flops_at_128),
    "latency": FactColumn(
        "latency (ms)",
        lambda v: milliseconds(v)[0],
        lambda m: m.latency_ms.median if m.latency_ms else None,
        middle=True,
    ),
    "speedup": FactColumn("× teacher's speed", lambda v: f"{v:.1f}", of_run=speedup, middle=True),
    "kept": FactColumn("% of teacher", lambda v: f"{v:.1f}"),
    "last": FactColumn(
        "last epoch",
        lambda v: f"{v:.1f}",
        of_run=lambda r: None if r.last is None else r.last.primary,
    ),
    "time": FactColumn("training time", duration, of_run=lambda r: r.cost.total_seconds),
    "training-speedup": FactColumn(
        "× baseline's training speed", lambda v: f"{v:.2f}", against=training_speedup
    ),
}
DEFAULT_FACTS = ("layers", "parameters", "kept")


def check_facts(names: Sequence[str]) -> None:
    """Raises LimbeckError for a fact column that does not exist."""
    problems = [unknown("fact column", name, list(FACTS)) for name in names if name not in FACTS]
    if problems:
        raise LimbeckError(problems)


def facts_of(
    models: Sequence[ModelFacts],
    runs: Sequence[Record],
    kept: float | None,
    baseline: Sequence[Record] = (),
) -> dict[str, Fact]:
    """Every fact of one row: the mean over its models (class counts differ a little by task).

    Latency is the median of the runs' medians with the median of their spreads. Models of different
    runs were timed at different times; `speedup` compares what each run timed in turns. `baseline`: the
    runs of the baseline's row, where the table has one.
    """
    facts: dict[str, Fact] = {"kept": Fact(kept)}
    for name, column in FACTS.items():
        if column.against is not None:
            facts[name] = Fact(column.against(runs, baseline))
            continue
        if column.of_model is not None:
            found = [column.of_model(model) for model in models]
        elif column.of_run is not None:
            found = [column.of_run(run) for run in runs]
        else:
            continue
        values = [value for value in found if value is not None]
        if not values:
            facts[name] = Fact()
        elif name == "latency":
            spreads = [model.latency_ms.spread for model in models if model.latency_ms]
            facts[name] = Fact(statistics.median(values), statistics.median(spreads))
        else:
            join = statistics.median if column.middle else statistics.fmean
            facts[name] = Fact(join(values))
    return facts


# Latencies of one bench in place of each run's own, where one bench timed all the runs of a table.
# A run times its own student and teacher; models of different runs can be compared only where
# something has timed them in turns.


def with_bench(records: Sequence[Record]) -> tuple[Sequence[Record], str | None]:
    """The records with the bench's latencies, and its name; as they are where not all share a bench.

    A teacher that the bench did not time has no latency then: it was timed with others.
    """
    names = {_bench_of(record.student) for record in records if record.status == "finished"}
    if len(names) != 1 or None in names:
        return records, None
    (name,) = names
    return [_benched(record, str(name)) for record in records], name


def _bench_of(facts: ModelFacts) -> str | None:
    return None if facts.bench_ms is None else facts.bench_ms.bench


def _benched(record: Record, bench: str) -> Record:
    def timed(facts: ModelFacts) -> dict[str, Any]:
        found = facts.bench_ms
        return {"latency_ms": found if found is not None and found.bench == bench else None}

    changed = record.model_copy()
    changed.student = record.student.model_copy(update=timed(record.student))
    if record.teacher is not None:
        changed.teacher = record.teacher.model_copy(update=timed(record.teacher))
    return changed
