"""A table as text in cells, before any markup: what all renderers agree on.

Part of `limbeck.tables`.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from limbeck.records import Record
from limbeck.records.facts import ModelFacts
from limbeck.support.errors import LimbeckError, unknown
from limbeck.support.words import count_of
from limbeck.tables.model import Fact, ResultsTable, Row, TableCell, place_of

NOTHING = "–"

# A task's name may come from a file: line breaks would end a row, escapes would drive the terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def one_line(text: str) -> str:
    """The text with a space for every run of control characters and line breaks."""
    return _CONTROL.sub(" ", text)


@dataclass(frozen=True)
class Piece:
    """One printed cell: the number, its spread, the test's marker, and what else to know."""

    main: str
    spread: str = ""
    marker: str = ""
    remark: str = ""
    printed: str = ""
    """A paper's number of the same cell."""

    @property
    def plain(self) -> str:
        """The cell in one line of plain text."""
        spread = f"± {self.spread}" if self.spread else ""
        remark = f"({self.remark})" if self.remark else ""
        printed = f"[{self.printed}]" if self.printed else ""
        return " ".join(part for part in (self.main, spread, self.marker, remark, printed) if part)


@dataclass(frozen=True)
class Grid:
    """Headings and rows of pieces, each of one line; a rule goes above each row index in `rules`."""

    headings: tuple[str, ...]
    rows: tuple[tuple[Piece, ...], ...]
    rules: frozenset[int]
    notes: tuple[str, ...] = ()


def grid(table: ResultsTable) -> Grid:
    """Method, layers, one column a task, the average, then the other facts."""
    with_layers = "layers" in table.facts
    others = [name for name in table.facts if name != "layers"]
    headings = ["method", *(["layers"] if with_layers else [])]
    headings += [column.title for column in table.columns]
    headings += ["average"] if table.has_average else []
    headings += [FACTS[name].title for name in others]
    depths = {row.layers for row in table.rows if row.role == "student"}
    usual = table.usual_n
    rows = []
    for row in table.rows:
        say_depth = not with_layers and len(depths) > 1 and row.layers is not None
        label = f"{row.label} ({count_of(row.layers or 0, 'layer')})" if say_depth else row.label
        pieces = [Piece(one_line(label))]
        if with_layers:
            pieces.append(Piece(str(row.layers) if row.layers is not None else NOTHING))
        for column in table.columns:
            pieces.append(score_piece(row.cells[column.key], row, usual))
        if table.has_average:
            pieces.append(score_piece(row.average, row, row.average.n))
        pieces += [fact_piece(name, row.facts.get(name, Fact())) for name in others]
        rows.append(tuple(pieces))
    rules = {
        index
        for index in range(1, len(table.rows))
        if _section(table.rows[index]) != _section(table.rows[index - 1])
    }
    return Grid(
        tuple(map(one_line, headings)),
        tuple(rows),
        frozenset(rules),
        tuple(map(one_line, table.notes)),
    )


def score_piece(cell: TableCell, row: Row, usual_n: int) -> Piece:
    """A score cell; runs that failed or have not ended are said in it."""
    remarks = []
    if row.role == "student" and cell.n not in (0, usual_n):
        remarks.append(f"n = {cell.n}")
    if cell.marker and cell.comparison and cell.comparison.pairs < cell.comparison.runs:
        remarks.append(f"{cell.comparison.pairs} paired")
    if cell.failed:
        remarks.append(f"{cell.failed} failed")
    if cell.unfinished:
        remarks.append(f"{cell.unfinished} unfinished")
    remark = ", ".join(remarks)
    printed = cell.printed or ""
    if cell.printed_test is not None:
        printed = f"{cell.printed or NOTHING} / {cell.printed_test}"
    if cell.mean is None:
        if cell.failed and not cell.unfinished:
            return Piece("failed", printed=printed)
        return Piece(NOTHING, remark=remark, printed=printed)
    spread = "" if cell.deviation is None else f"{cell.deviation:.1f}"
    return Piece(f"{cell.mean:.1f}", spread, cell.marker, remark, printed)


def fact_piece(name: str, fact: Fact) -> Piece:
    """A fact cell in its own unit."""
    printed = fact.printed or ""
    if fact.value is None:
        return Piece(NOTHING, printed=printed)
    if name == "latency":
        return Piece(*milliseconds(fact.value, fact.spread), printed=printed)
    return Piece(FACTS[name].text(fact.value), printed=printed)


def caption(table: ResultsTable) -> str:
    """The table's title, and the profile if its scores follow one."""
    title = one_line(table.title) or "Scores"
    return f"{title} (profile {table.profile})" if table.follows_profile else title


def _section(row: Row) -> tuple[str, int | None]:
    return row.role, row.layers if row.role == "student" else None


# The measured columns of a table: size, work, speed, share of the teacher's score kept.


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


def magnitude(value: float) -> str:
    """Three significant digits with K, M, G or T: 66_400_000 → "66.4M"."""
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= 0.9995 * limit:
            scaled = value / limit
            digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            return f"{scaled:.{digits}f}{suffix}"
    return f"{value:.0f}"


def duration(seconds: float) -> str:
    """Seconds as "8 s", "12 min" or "3.4 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign; one that rounds to nothing has none."""
    text = f"{value:+.{digits}f}"
    return (text[1:] if float(text) == 0 else text).replace("-", "−")


def decimal(value: float | None, digits: int = 1) -> str:
    """A score, a dash where there is none."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def milliseconds(value: float, spread: float | None = None) -> tuple[str, str]:
    """Three significant digits of a time, and its spread (or nothing) to the same decimals."""
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}", "" if spread is None else f"{spread:.{digits}f}"


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
