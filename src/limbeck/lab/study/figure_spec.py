"""The keys of a study's figures, and which kinds of figure there are. Part of `limbeck.lab.study`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from limbeck.support.settings import Names, Settings
from limbeck.tables.facts import FACTS
from limbeck.tables.model import AVERAGE, Fact, ResultsTable, Row, TableCell

TASK, METHOD = "task", "method"
PARAMETERS = "parameters"
"""As `x`: the student's number of weights, measured."""
SCORE = "dev"
"""As `y`: the primary dev score."""


class FigureSpec(Settings):
    """One figure."""

    draw: str = Field(description="lines, boxes, bars, heat, curves, probabilities or analysis")
    title: str = Field("", description="title; by default the figure's name")
    methods: Names | None = Field(
        None, description="rows of the table that are in it; all by default"
    )
    tasks: Names | None = Field(None, description="tasks that are in it; all by default")
    x: str | None = Field(None, description="lines: a key of axes, or parameters")
    y: str = Field(
        SCORE,
        description="curves: dev, the primary score; dev.NAME, another dev metric, dev.loss; or a training term, loss "
        "their sum",
    )
    rows: str | None = Field(None, description="heat: a key of axes, task or method")
    columns: str | None = Field(None, description="heat: the same, for the columns")
    of: str | None = Field(None, description="analysis: which, as `limbeck analyze` calls it")
    settings: dict[str, Any] = Field(default_factory=dict, description="analysis: its settings")
    split: str | None = Field(
        None, description="analysis: of which split; by default that which selects"
    )
    stage: str | None = Field(
        None,
        description="analysis: first, students as they were after their first stage, which keep_first_stage keeps; by "
        "default last",
    )


@dataclass(frozen=True)
class FigureKind:
    """The fields of a `FigureSpec` that a kind of figure requires, and the others that it reads."""

    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


KINDS = {
    "lines": FigureKind(needs=("x",)),
    "boxes": FigureKind(),
    "bars": FigureKind(),
    "heat": FigureKind(needs=("rows", "columns")),
    "curves": FigureKind(takes=("y",)),
    "probabilities": FigureKind(),
    "analysis": FigureKind(needs=("of",), takes=("settings", "split", "stage")),
}
_OF_ALL = {"draw", "title", "methods", "tasks"}


def unread(spec: FigureSpec) -> list[str]:
    """Keys that are given and that its kind of figure does not read."""
    kind = KINDS[spec.draw]
    return sorted(spec.model_fields_set - _OF_ALL - {*kind.needs, *kind.takes})


def missing(spec: FigureSpec) -> list[str]:
    """Keys that its kind of figure needs and that are not given."""
    return [key for key in KINDS[spec.draw].needs if getattr(spec, key) is None]


# A paper's printed numbers next to the runs', cell by cell; the runs' own numbers never change.


TEACHER = "teacher"
"""The row of a paper's teacher."""

Printed = Mapping[str, Mapping[str, float]]
"""Row label → column title (or `average`) → number."""


def beside_printed(
    table: ResultsTable,
    printed: Printed,
    *,
    decimals: int,
    source: str,
    deviations: bool = False,
    average_of: Collection[str] = (),
    test: Printed | None = None,
) -> ResultsTable:
    """The table with a paper's numbers in the same cells, and a note on their meaning.

    With `deviations` the paper's numbers are standard deviations, marked by their ±. `average_of`:
    columns that the paper's average is of and that it does not print. `test`: its numbers of the benchmark's test
    files, which come after dev's. A column may also be one of the table's facts, by its name there.

    A paper's average is shown only if all of its columns are in the table. If some are missing
    it is the weighted mean of the printed numbers of the others, and the note mentions it.
    """
    titles = [column.title for column in table.columns]
    own = {title for row in printed.values() for title in row if title != AVERAGE} - {*FACTS}
    known = own | set(average_of)
    whole = known <= set(titles)
    if not known & set(titles):
        return table
    form = f"{'± ' if deviations else ''}{{:.{decimals}f}}"
    rows = [_row(row, table, printed, form, whole) for row in table.rows]
    said = f"In square brackets: {source}, as printed."
    if test:
        rows = [_row(row, table, test, form, whole, of_test=True) for row in rows]
        said += (
            " Behind the stroke: the paper's numbers of GLUE's test files, which only the benchmark scores. "
            "Ours are of dev: compare them with the first number."
        )
    if not whole and table.has_average and any(row.average.printed for row in rows):
        left_out = ", ".join(sorted(known - set(titles)))
        said += f" Its averages here are of these columns alone, without {left_out}."
    return replace(table, rows=tuple(rows), notes=(*table.notes, said))


def in_order(table: ResultsTable, labels: Sequence[str]) -> ResultsTable:
    """The table with its students in the order of the labels, the deepest first; teachers stay on top."""
    place = {label: number for number, label in enumerate(labels)}

    def key(row: Row) -> tuple[bool, int, int]:
        student = row.role == "student"
        # A row that a setting splits is called as its method and the setting.
        known = [label for label in place if f"{row.label} ".startswith(f"{label} ")]
        own = place[max(known, key=len)] if known else len(place)
        return student, -(row.layers or 0), own if student else 0

    return replace(table, rows=tuple(sorted(table.rows, key=key)))


def _row(
    row: Row,
    table: ResultsTable,
    printed: Printed,
    form: str,
    whole: bool,
    *,
    of_test: bool = False,
) -> Row:
    """The row with a paper's numbers of dev or of the test files."""
    own = printed.get(TEACHER if row.role == "teacher" else row.label, {})
    cells = {
        column.key: _with(row.cells[column.key], own.get(column.title), form, of_test)
        for column in table.columns
    }
    facts = dict(row.facts)
    for name in {*table.facts} & own.keys():
        facts[name] = replace(facts.get(name, Fact()), printed=FACTS[name].text(own[name]))
    average = own.get(AVERAGE) if whole else _mean(own, table)
    average_cell = _with(row.average, average, form, of_test)
    return replace(row, cells=cells, average=average_cell, facts=facts)


def _mean(own: Mapping[str, float], table: ResultsTable) -> float | None:
    averaged = [column for column in table.columns if column.in_average]
    if not averaged or any(column.title not in own for column in averaged):
        return None
    total = sum(column.weight for column in averaged)
    return sum(column.weight * own[column.title] for column in averaged) / total


def _with(cell: TableCell, number: float | None, form: str, of_test: bool) -> TableCell:
    if number is None:
        return cell
    text = form.format(number)
    return replace(cell, printed_test=text) if of_test else replace(cell, printed=text)
