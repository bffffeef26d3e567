"""How the command line shows what predictions of classes come to. Part of `limbeck.cli`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from limbeck.cli.console import output, say

if TYPE_CHECKING:
    from limbeck.records import ClassificationScores, RowTests

# More do not fit a screen.
_MOST_CLASSES = 40
_MOST_EXAMPLES = 5


def show_classification(found: ClassificationScores) -> None:
    """Print all classes together, each class, the confusion matrix and the worst disagreements."""
    from limbeck.tables import classes as cells

    _show(cells.whole_cells(found))
    by_class = cells.class_cells(found)
    _show(by_class[: _MOST_CLASSES + 1])
    if len(by_class) > _MOST_CLASSES + 1:
        say(f"{len(by_class) - 1 - _MOST_CLASSES} more classes: --json shows them")
    for counted in (cells.count_cells(found), cells.confusion_cells(found, found.student)):
        if counted is not None:
            _show(counted[: _MOST_CLASSES + 1])
    for line in cells.tie_words(found):
        say(line)
    agreement = cells.agreement_words(found)
    if agreement is not None:
        say(agreement)
    if found.disagreements:
        say("they disagree most on:")
        _show(cells.disagreement_cells(found, _MOST_EXAMPLES))


def show_row_tests(tests: RowTests, first: str, second: str) -> None:
    """Print what tests over rows say of two models."""
    from limbeck.tables.classes import row_test_words

    for line in row_test_words(tests, first, second):
        say(line)


def _show(cells: list[list[str]]) -> None:
    heading, *rows = cells
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
    for at, name in enumerate(heading):
        words = at == 0 or (name in ("label", "student", "teacher", "text") and "row" in heading)
        table.add_column(
            Text(name),
            justify="left" if words else "right",
            overflow="fold" if words else "ellipsis",
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    output().print(table)
