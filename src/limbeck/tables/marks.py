"""What a reader must know of the marks ▲ and ▼: what was tested, over how many seeds, what was not.

Part of `limbeck.tables`. Without a significant difference a table says nothing about order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from limbeck.tables.model import SIGNIFICANT, TableColumn, Tested

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
    variance: str = "own",
) -> list[str]:
    """The notes on the tests in `found`; `lonely` rows had no baseline to be tested against."""
    notes: list[str] = []
    if found:
        many = sum(column.in_average for column in columns) > 1
        pooled = variance == "pooled"
        average = (
            (
                "; the average likewise, for these tasks alone"
                if pooled
                else "; the average by a paired sign-flip permutation test over (task, seed) pairs, every "
                "task weighing what it weighs in the average, and for these tasks alone"
            )
            if many
            else ""
        )
        each = (
            "by t-tests with the spread over seeds pooled over all methods of the same layers"
            if pooled
            else "by a paired t-test over shared seeds"
        )
        together = (
            f"over the {sum(test.p is not None for test in found.values())} tests of this table"
            if correction == "table"
            else "over the rows of a column"
        )
        notes.append(
            f"▲ above, ▼ below {baseline} with the same layers, p < {SIGNIFICANT:g}: each task {each} "
            f"({_seeds_paired(found, columns)}){average}; "
            f"two-sided, Holm-corrected {together}. The dev rows are held fixed. No mark: no difference shown, "
            "which is not that there is none."
        )
        notes += _beyond_reach(found, columns)
        notes += _differences(found, rows, columns, baseline)
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


def _beyond_reach(found: Found, columns: Sequence[TableColumn]) -> list[str]:
    """Columns in which the smallest p that the test can reach is no mark, whatever the scores are."""
    said = []
    for key, title in _titles(columns):
        bounds = [
            t.smallest for (_, at), t in found.items() if at == key and t.smallest is not None
        ]
        if not bounds:
            continue
        reached = (
            f"{title}: the smallest p that it could reach is {min(bounds):.2g} (Holm-corrected)"
        )
        if min(bounds) >= SIGNIFICANT:
            reached += (
                ", so that no row can bear a mark whatever its scores: take more seeds, --variance pooled, or "
                "--correction column"
            )
        said.append(f"{reached}.")
    return said


def _differences(
    found: Found, rows: Mapping[int, RowId], columns: Sequence[TableColumn], baseline: str
) -> list[str]:
    """By row each difference with its interval and p."""
    said = []
    for index, row in rows.items():
        parts = []
        for key, title in _titles(columns):
            test = found.get((index, key))
            if test is None:
                continue
            part = f"{title} {_signed(test.difference)}"
            if test.low is not None and test.high is not None:
                part += f" ({_signed(test.low)} to {_signed(test.high)})"
            parts.append(part if test.p is None else f"{part}, p {_p(test.p)}")
        if parts:
            said.append(f"{row_label(row)}: {'; '.join(parts)}")
    if not said:
        return []
    lead = f"Less {baseline}, each with its own 95 % interval and the corrected p. "
    return [f"{lead}{'. '.join(said)}."]


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


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
