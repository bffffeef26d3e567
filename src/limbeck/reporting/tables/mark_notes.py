"""What a reader must know of the marks ▲ and ▼: what was tested, over how many seeds, what was not.

Part of `limbeck.reporting.tables`. Without a significant difference a table says nothing about order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from limbeck.reporting.tables.model import SIGNIFICANT, TableColumn, Tested

RowId = tuple[str, int | None, tuple[str, ...]]
"""Method, student layers, values of the `by` settings."""

Found = Mapping[tuple[int, str], Tested]


def mark_notes(
    found: Found,
    rows: Mapping[int, RowId],
    baseline: str,
    columns: Sequence[TableColumn],
    lonely: Sequence[str],
    correction: str,
) -> list[str]:
    """The notes on the tests in `found`; `lonely` rows had no baseline to be tested against."""
    notes: list[str] = []
    if found:
        many = sum(column.in_average for column in columns) > 1
        average = (
            "; the average by a paired sign-flip permutation test over (task, seed) pairs, every "
            "task weighing what it weighs in the average, and for these tasks alone"
            if many
            else ""
        )
        together = (
            f"over the {sum(test.p is not None for test in found.values())} tests of this table"
            if correction == "table"
            else "over the rows of a column"
        )
        notes.append(
            f"▲ above, ▼ below {baseline} with the same layers, p < {SIGNIFICANT:g}: each task by "
            f"a paired t-test over shared seeds ({_seeds_paired(found, columns)}){average}; "
            f"two-sided, Holm-corrected {together}. No mark: no difference shown."
        )
    notes += [
        f"{said}: {'; '.join(where)}."
        for said, where in (
            ("Fewer seeds paired than shown", _where(found, rows, columns, _fewer, _counted)),
            (
                "No mark, because the paired seeds point the other way than the means shown",
                _where(found, rows, columns, lambda test: test.contradicts, _named),
            ),
            ("Too few shared seeds, or no spread, to test", _untested(found, rows, columns)),
        )
        if where
    ]
    if lonely:
        notes.append(f"No {baseline} run of the same layers to compare with: {', '.join(lonely)}.")
    return notes


def row_label(row: RowId) -> str:
    """A row as notes name it: method, settings, depth."""
    method, layers, variant = row
    return " ".join([method, *variant]) + (f", {layers} layers" if layers else "")


def _seeds_paired(found: Found, columns: Sequence[TableColumn]) -> str:
    keys = {column.key for column in columns}
    counts = sorted({test.pairs for (_, key), test in found.items() if key in keys})
    if counts == [1]:
        return "1 seed paired"
    return f"{'–'.join(str(c) for c in sorted({counts[0], counts[-1]}))} seeds paired"


def _fewer(test: Tested) -> bool:
    return test.pairs < test.runs


def _counted(row: RowId, test: Tested) -> str:
    return f"{row_label(row)}: {test.pairs}"


def _named(row: RowId, test: Tested) -> str:
    return row_label(row)


def _where(
    found: Found,
    rows: Mapping[int, RowId],
    columns: Sequence[TableColumn],
    is_so: Callable[[Tested], bool],
    say: Callable[[RowId, Tested], str],
) -> list[str]:
    said = []
    for key, title in _titles(columns):
        some = [say(rows[i], test) for (i, at), test in found.items() if at == key and is_so(test)]
        if some:
            said.append(f"{title} ({', '.join(some)})")
    return said


def _untested(found: Found, rows: Mapping[int, RowId], columns: Sequence[TableColumn]) -> list[str]:
    said = []
    for column in columns:
        results = {i: test for (i, key), test in found.items() if key == column.key}
        blank = [row_label(rows[i]) for i, test in results.items() if test.p is None]
        if blank:
            who = "" if len(blank) == len(results) else f" ({', '.join(blank)})"
            said.append(column.title + who)
    return said


def _titles(columns: Sequence[TableColumn]) -> list[tuple[str, str]]:
    return [(column.key, column.title) for column in columns] + [("average", "average")]
