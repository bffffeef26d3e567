"""A table as text in cells, before any markup: what all renderers agree on.

Part of `limbeck.reporting.tables`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from limbeck.reporting.tables.measured_columns import FACTS, milliseconds
from limbeck.reporting.tables.model import Fact, ResultsTable, Row, TableCell

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
        label = f"{row.label} ({row.layers} layers)" if say_depth else row.label
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
