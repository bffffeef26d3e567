"""The one shape of a results table that every renderer reads.

Part of `limbeck.tables`. Numbers stay
numbers here; only renderers turn them into text.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from limbeck.records import Record
from limbeck.records.facts import Numbers
from limbeck.support.errors import LimbeckError
from limbeck.tables.profiles import TITLES, columns_of_task

SIGNIFICANT = 0.05
AVERAGE = "average"
"""Key and title of a table's last column."""

OutOfDomain = Literal["beside", "alone", "left out"]
"""Whether scores on out-of-domain sets have columns next to the tasks', which alone are averaged, or are
themselves the table."""


@dataclass(frozen=True)
class TableColumn:
    """One score column: a task under the table's profile, or one out-of-domain set."""

    key: str
    title: str
    place: str
    """The task and data it belongs to; a profile may give a task several columns."""
    weight: int = 1
    """Its weight in the average: 0 if it is left out, 2 if a paper counts it twice."""

    @property
    def in_average(self) -> bool:
        """Whether the average has a part of this column."""
        return self.weight > 0


class Tested(NamedTuple):
    """One cell of a row against the baseline's, over the runs that both have."""

    difference: float
    """Row minus baseline over the paired runs, in points."""
    p: float | None
    """Two-sided, Holm-corrected; None where no test is possible."""
    pairs: int
    shown: float
    """Row minus baseline of the numbers that are printed, which may be of more runs."""
    runs: int
    """How many runs are printed, on the side that has more."""
    low: float | None = None
    """The 95 % interval of the difference, of this comparison alone; None where there is no spread."""
    high: float | None = None
    margin: float | None = None
    """Within how many points the two are equal by two one-sided tests at 5 %."""
    smallest: float | None = None
    """The smallest p that the test could have reached, Holm-corrected; None where there is no bound."""
    alone: bool = False
    """Whether a pooled spread was wanted, and no other row has the seeds: only these two estimate it."""

    @property
    def contradicts(self) -> bool:
        """Whether a test finds "above" (or "below") where the printed numbers do not show it."""
        significant = self.p is not None and self.p < SIGNIFICANT
        return significant and self.difference * self.shown <= 0


@dataclass(frozen=True)
class TableCell:
    """Scores of one row in one column, one value a seed; 0..100."""

    mean: float | None = None
    deviation: float | None = None
    """Sample standard deviation over seeds (n − 1); None for fewer than two."""
    n: int = 0
    failed: int = 0
    unfinished: int = 0
    comparison: Tested | None = None
    """Against the baseline."""
    printed: str | None = None
    """The number in a paper's own table, with its decimals."""
    printed_test: str | None = None
    """Its number for the benchmark's test files."""

    @property
    def marker(self) -> Literal["▲", "▼", ""]:
        """Above or below the baseline where the test supports it; empty wherever it does not."""
        if self.comparison is None or self.comparison.p is None:
            return ""
        if self.comparison.p >= SIGNIFICANT or self.comparison.contradicts:
            return ""
        return "▲" if self.comparison.difference > 0 else "▼"


@dataclass(frozen=True)
class Fact:
    """One measured property of a row's models, with its spread where it was measured."""

    value: float | None = None
    spread: float | None = None
    printed: str | None = None
    """The number in a paper's own table."""


@dataclass(frozen=True)
class Row:
    """One method at one student size, one teacher size, or what words alone reach."""

    label: str
    role: Literal["teacher", "student", "floor"]
    layers: int | None
    cells: Mapping[str, TableCell]
    average: TableCell
    facts: Mapping[str, Fact] = field(default_factory=dict)
    is_baseline: bool = False


@dataclass(frozen=True)
class ResultsTable:
    """Rows by columns, and the notes without which the numbers cannot be read."""

    title: str
    profile: str
    columns: tuple[TableColumn, ...]
    rows: tuple[Row, ...]
    facts: tuple[str, ...]
    """Which fact columns to show, in order; keys of `limbeck.tables.FACTS`."""
    notes: tuple[str, ...]
    baseline: str | None = None
    follows_profile: bool = True
    """Whether a column is of a task that profiles know; a user's own has its primary score alone."""

    @property
    def has_average(self) -> bool:
        """Whether there is more than one column to average, and a row that has them all."""
        several = sum(column.in_average for column in self.columns) > 1
        return several and any(row.average.mean is not None for row in self.rows)

    @property
    def has_printed(self) -> bool:
        """Whether a paper's numbers are shown next to the runs'."""
        return any(cell.printed is not None for cell in self._cells)

    @property
    def has_printed_test(self) -> bool:
        """Whether a paper's numbers for the benchmark's test files are shown too."""
        return any(cell.printed_test is not None for cell in self._cells)

    @property
    def _cells(self) -> Iterator[TableCell]:
        return (cell for row in self.rows for cell in (*row.cells.values(), row.average))

    @property
    def usual_n(self) -> int:
        """The most frequent number of seeds in a student's cell; cells that differ show their own."""
        counts = [
            cell.n
            for row in self.rows
            if row.role == "student"
            for cell in row.cells.values()
            if cell.n
        ]
        return max(sorted(set(counts)), key=counts.count) if counts else 0


# One run's contribution to a table: its score in each column, under a named profile. Part of
# `limbeck.tables`: the only place there that knows tasks and profiles. A *place* is one
# task on one source of data; a profile may show several columns of it (accuracy and F1, MNLI's two
# sets).


# Splits that a profile reads; every other key of a record's scores is a column of its own.
_PROFILE_SPLITS = ("dev", "dev_mismatched")


def place_of(record: Record) -> str:
    """The task and data of a run; runs are compared only where this agrees."""
    return f"{record.task}|{_data_name(record)}"


def place_title(record: Record, several_sources: bool) -> str:
    """A place's printed name; the data are named only where there are several."""
    return task_title(record.task) + (f" ({_data_name(record)})" if several_sources else "")


def several_sources(records: Sequence[Record]) -> bool:
    """Whether the runs read more than one source of data."""
    return len({_data_name(record) for record in records}) > 1


def on_split(records: Sequence[Record], split: str) -> list[Record]:
    """The runs with the scores of one split instead of dev's, also for teacher and floor; no other splits.

    Failed and unfinished runs stay as they are.

    Raises:
        LimbeckError: a finished run that was not scored on it.
    """
    without = [one for one in records if one.status == "finished" and split not in one.scores]
    if without:
        raise LimbeckError(
            f"split {split}: {len(without)} of {len(records)} runs have no scores there, the first of them "
            f"{without[0].path or without[0].method}",
            f"score them: limbeck evaluate RUN --split {split}; or leave them out",
        )
    moved = []
    for record in records:
        if split in record.scores:
            record = record.model_copy(deep=True)
            rows = record.examples.fingerprints.get(split)
            record.examples.fingerprints = {} if rows is None else {"dev": rows}
            if split == "test":
                record.examples.dev = record.examples.test
            for scored in (record, record.teacher, record.floor):
                if scored is not None:
                    known = scored.scores.get(split)
                    scored.scores = {} if known is None else {"dev": known}
        moved.append(record)
    return moved


def split_note(records: Sequence[Record], split: str | None) -> str:
    """The role of the scored rows: they selected something, or nothing. Empty if no run has test rows."""
    if split is not None:
        chose = ", which chose nothing" if split == "test" else ""
        return f"Scores are of the {split} rows{chose}."
    if not any("test" in record.scores for record in records):
        return ""
    return (
        "A task's own column is on its dev rows: the best epoch's score on the rows that selected it. The column "
        "'test' is on rows that selected nothing; --split test makes the complete table on them."
    )


def columns_of(
    records: Sequence[Record], profile: str, out_of_domain: OutOfDomain
) -> list[TableColumn]:
    """All columns of these records in GLUE's order, out-of-domain sets after the tasks."""
    alone = out_of_domain == "alone"
    many = several_sources(records)
    order = {name: number for number, name in enumerate(TITLES)}
    found: dict[tuple[bool, int, str], TableColumn] = {}
    for record in records:
        place = place_of(record)
        source = f" ({_data_name(record)})" if many else ""
        source += " agreement" if record.examples.labels == "teacher" else ""
        number = order.get(record.task, len(order))
        for one in () if alone else columns_of_task(profile, record.task):
            key = f"{place}|{one.title}"
            column = TableColumn(key, one.title + source, place, one.weight)
            found.setdefault((False, number, key), column)
        for split in () if out_of_domain == "left out" else _extra_splits(record.scores):
            key = f"{place}|{split}"
            arrow = " " if split == "test" else " → "
            title = f"{task_title(record.task)}{arrow}{task_title(split)}{source}"
            found.setdefault((True, number, key), TableColumn(key, title, place, int(alone)))
    # Stable: the columns of one task stay in their profile's order.
    return [found[key] for key in sorted(found, key=lambda key: (key[0], key[1], found[key].place))]


def values_of(
    record: Record, profile: str, scores: Mapping[str, Numbers] | None = None
) -> dict[str, float]:
    """Column key → score, of one finished run, or of a model that was scored on its rows (`scores`)."""
    scores = record.scores if scores is None else scores
    values = {one.title: one.value(scores) for one in columns_of_task(profile, record.task)}
    values |= {split: scores[split].get("primary") for split in _extra_splits(scores)}
    place = place_of(record)
    return {f"{place}|{title}": value for title, value in values.items() if value is not None}


def teacher_values(record: Record, profile: str) -> dict[str, float]:
    """Column key → the score of the run's teacher; empty if the run has no teacher."""
    return {} if record.teacher is None else values_of(record, profile, record.teacher.scores)


def task_title(name: str) -> str:
    """A known task's printed name; any other name as it is."""
    return str(TITLES.get(name, name))


def _extra_splits(scores: Mapping[str, Numbers]) -> list[str]:
    return [split for split in scores if split not in _PROFILE_SPLITS]


def _data_name(record: Record) -> str:
    # A folder's last part: the same data have another path on another machine.
    return Path(record.data).name or record.data
