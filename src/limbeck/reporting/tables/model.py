"""The one shape of a results table that every renderer reads.

Part of `limbeck.reporting.tables`. Numbers stay
numbers here; only renderers turn them into text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

SIGNIFICANT = 0.05

OutOfDomain = Literal["beside", "alone", "left out"]
"""Whether scores on out-of-domain sets have columns beside the tasks', which alone are averaged, or are
themselves the table."""


@dataclass(frozen=True)
class TableColumn:
    """One score column: a task under the table's profile, or one out-of-domain set."""

    key: str
    title: str
    place: str
    """The task and data it belongs to; a profile may give a task several columns."""
    weight: int = 1
    """How often it counts in the average: 0 for one beside it, 2 where a paper counts it twice."""

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

    @property
    def contradicts(self) -> bool:
        """Whether a test says "above" (or "below") where the printed numbers do not."""
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
    """What a paper's own table says here, with its decimals."""
    printed_test: str | None = None
    """What it says of the benchmark's test files."""

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
    """What a paper's own table says here."""


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
    """Which fact columns to show, in order; keys of `limbeck.reporting.tables.FACTS`."""
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
        """Whether a paper's numbers stand beside those of the runs."""
        return any(cell.printed is not None for cell in self._cells)

    @property
    def has_printed_test(self) -> bool:
        """Whether a paper's numbers of the benchmark's test files stand there too."""
        return any(cell.printed_test is not None for cell in self._cells)

    @property
    def _cells(self) -> Iterator[TableCell]:
        return (cell for row in self.rows for cell in (*row.cells.values(), row.average))

    @property
    def usual_n(self) -> int:
        """The most frequent number of seeds in a student's cell; cells that differ say so."""
        counts = [
            cell.n
            for row in self.rows
            if row.role == "student"
            for cell in row.cells.values()
            if cell.n
        ]
        return max(sorted(set(counts)), key=counts.count) if counts else 0
