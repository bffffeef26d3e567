"""The measured columns of a table: size, work, speed, share of the teacher's score kept. Part of `limbeck.tables`."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from limbeck.records import Record
from limbeck.records.facts import ModelFacts
from limbeck.records.words import speedup
from limbeck.support.cells import duration, magnitude, milliseconds
from limbeck.support.errors import raise_problems, unknown
from limbeck.tables.model import Fact, place_of

Value = Callable[[Sequence[ModelFacts], Sequence[Record], Sequence[Record]], float | None]


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


Join = Callable[[list[Any]], float]


def _joined(found: Iterable[Any], join: Join) -> float | None:
    known = [value for value in found if value is not None]
    return join(known) if known else None


def _of_models(read: Callable[[ModelFacts], Any], join: Join = statistics.fmean) -> Value:
    return lambda models, runs, baseline: _joined(map(read, models), join)


def _of_runs(read: Callable[[Record], Any], join: Join = statistics.fmean) -> Value:
    return lambda models, runs, baseline: _joined(map(read, runs), join)


@dataclass(frozen=True)
class FactColumn:
    """A column's heading, how to print a value, and the value from a row's models and runs and the baseline's runs."""

    title: str
    text: Callable[[float], str]
    value: Value


FACTS: dict[str, FactColumn] = {
    "layers": FactColumn("layers", "{:g}".format, _of_models(lambda m: m.layers)),
    "parameters": FactColumn("parameters", magnitude, _of_models(lambda m: m.parameters)),
    "embeddings": FactColumn(
        "of them embeddings", magnitude, _of_models(lambda m: m.embedding_parameters)
    ),
    "flops": FactColumn("FLOPs / example", magnitude, _of_models(lambda m: m.flops_per_example)),
    "flops-128": FactColumn("FLOPs at 128 tokens", magnitude, _of_models(lambda m: m.flops_at_128)),
    # For several runs the median and not the mean: one slow run is not representative of the model.
    "latency": FactColumn(
        "latency (ms)",
        lambda v: milliseconds(v)[0],
        _of_models(lambda m: m.latency_ms and m.latency_ms.median, statistics.median),
    ),
    "speedup": FactColumn(
        "× teacher's speed", "{:.1f}".format, _of_runs(speedup, statistics.median)
    ),
    "kept": FactColumn("% of teacher", "{:.1f}".format, lambda *_: None),
    "last": FactColumn(
        "last epoch", "{:.1f}".format, _of_runs(lambda r: r.last and r.last.primary)
    ),
    "time": FactColumn("training time", duration, _of_runs(lambda r: r.cost.total_seconds)),
    "training-speedup": FactColumn(
        "× baseline's training speed",
        "{:.2f}".format,
        lambda models, runs, baseline: training_speedup(runs, baseline),
    ),
}
DEFAULT_FACTS = ("layers", "parameters", "kept")


def check_facts(names: Sequence[str]) -> None:
    """Raises LimbeckError for a fact column that does not exist."""
    problems = [unknown("fact column", name, list(FACTS)) for name in names if name not in FACTS]
    raise_problems(problems)


def facts_of(
    models: Sequence[ModelFacts],
    runs: Sequence[Record],
    kept: float | None,
    baseline: Sequence[Record] = (),
) -> dict[str, Fact]:
    """Every fact of one row: the mean over its models (class counts differ a little by task).

    Latency is the median of the runs' medians with the median of their spreads. Models of different
    runs were timed at different times; `speedup` compares the models that each run timed in turns. `baseline`: the
    runs of the baseline's row, where the table has one.
    """
    facts = {name: Fact(one.value(models, runs, baseline)) for name, one in FACTS.items()}
    facts["kept"] = Fact(kept)
    timed = [model.latency_ms for model in models if model.latency_ms]
    if timed:
        spread = statistics.median(one.spread for one in timed)
        facts["latency"] = Fact(facts["latency"].value, spread)
    return facts


# Latencies of one bench instead of each run's own, if one bench timed all the runs of a table.
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
