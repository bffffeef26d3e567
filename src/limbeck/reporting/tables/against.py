"""Paired tests of every row against a baseline method's row of the same student size.

Part of `limbeck.reporting.tables`. Runs pair when task, data, seed and student depth agree. What is tested is
what is printed: a task's mean over its seeds, and the average as the weighted mean of these means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from limbeck.errors import LimbeckError, unknown
from limbeck.evaluation.compare import (
    Comparison,
    holm,
    paired,
    paired_permutation_test,
    paired_t_test,
)
from limbeck.reporting.tables.mark_notes import RowId, mark_notes, row_label
from limbeck.reporting.tables.model import TableColumn, Tested

Scores = dict[str, dict[int, float]]
"""Column key → seed → score, of one row."""

AVERAGE = "average"

CORRECTIONS = ("table", "column")
"""Which tests Holm's correction takes together: all of a table, or those of one column."""


def check_correction(correction: str) -> None:
    """Raises LimbeckError for a correction that does not exist."""
    if correction not in CORRECTIONS:
        raise LimbeckError(unknown("correction", correction, list(CORRECTIONS)))


def compare_rows(
    rows: Mapping[int, RowId],
    scores: Mapping[int, Scores],
    baseline: str | None,
    columns: Sequence[TableColumn],
    correction: str = "table",
) -> tuple[dict[tuple[int, str], Tested], list[str]]:
    """(row, column key or "average") → test with Holm-corrected p; and the notes on them."""
    if baseline is None:
        return {}, []
    found: dict[tuple[int, str], Tested] = {}
    lonely: list[str] = []
    for index, row in rows.items():
        if row[0] == baseline:
            continue
        other = _baseline_of(row, rows, baseline)
        if other is None:
            lonely.append(row_label(row))
            continue
        for key, result in _tests(scores[index], scores[other], columns).items():
            found[index, key] = result
    found = _corrected(found, correction)
    return found, mark_notes(found, rows, baseline, columns, lonely, correction)


def _corrected(
    found: Mapping[tuple[int, str], Tested], correction: str
) -> dict[tuple[int, str], Tested]:
    families: dict[str, dict[tuple[int, str], float]] = {}
    for (index, key), test in found.items():
        if test.p is not None:
            family = key if correction == "column" else correction
            families.setdefault(family, {})[index, key] = test.p
    p_values = {cell: p for family in families.values() for cell, p in holm(family).items()}
    return {cell: test._replace(p=p_values.get(cell)) for cell, test in found.items()}


def _baseline_of(row: RowId, rows: Mapping[int, RowId], baseline: str) -> int | None:
    same_size = {i: r for i, r in rows.items() if r[0] == baseline and r[1] == row[1]}
    for index, other in same_size.items():
        if other[2] == row[2]:
            return index
    # A baseline without the setting that splits this method is still its baseline.
    return next(iter(same_size)) if len(same_size) == 1 else None


def _tests(method: Scores, baseline: Scores, columns: Sequence[TableColumn]) -> dict[str, Tested]:
    results: dict[str, Tested] = {}
    for column in columns:
        mine, theirs = method.get(column.key, {}), baseline.get(column.key, {})
        compared = paired_t_test(*paired(mine, theirs))
        if compared is not None:
            shown = _mean(mine) - _mean(theirs)
            results[column.key] = Tested(*compared, shown, max(len(mine), len(theirs)))
    averaged = [column for column in columns if column.in_average]
    if len(averaged) > 1 and all(column.key in results for column in averaged):
        compared = _average_test(method, baseline, averaged)
        total = sum(column.weight for column in averaged)
        shown = sum(column.weight * results[column.key].shown for column in averaged) / total
        results[AVERAGE] = Tested(*compared, shown, compared.pairs)
    return results


def _average_test(method: Scores, baseline: Scores, columns: Sequence[TableColumn]) -> Comparison:
    """Sign flips of every (task, seed) pair's part in the difference of the two averages.

    The columns of one task rise and fall together, so that their parts flip sign as one.
    """
    total = sum(column.weight for column in columns)
    parts: dict[tuple[str, int], float] = {}
    for column in columns:
        mine, theirs = method[column.key], baseline[column.key]
        shared = mine.keys() & theirs.keys()
        for seed in shared:
            unit = (column.place, seed)
            part = column.weight * (mine[seed] - theirs[seed]) / (len(shared) * total)
            parts[unit] = parts.get(unit, 0.0) + part
    values = [parts[unit] for unit in sorted(parts)]
    # The test's statistic is the mean of the parts; the difference of the averages is their sum.
    flips = paired_permutation_test(values, [0.0] * len(values))
    assert flips is not None  # there is a pair in every column
    return flips._replace(difference=sum(values))


def _mean(by_seed: Mapping[int, float]) -> float:
    return sum(by_seed.values()) / len(by_seed)
