"""Paired tests of every row against a baseline method's row of the same student size.

Part of `limbeck.table`. Runs pair when task, data, seed and student depth agree. Without a
significant difference a table says nothing about order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from limbeck.evaluation.compare import (
    Comparison,
    holm,
    paired,
    paired_permutation_test,
    paired_t_test,
)
from limbeck.table.model import SIGNIFICANT, Column

Scores = dict[str, dict[int, float]]
"""Column key → seed → score, of one row."""

RowId = tuple[str, int | None, tuple[str, ...]]
"""Method, student layers, values of the `by` settings."""

AVERAGE = "average"


def compare_rows(
    rows: Mapping[int, RowId],
    scores: Mapping[int, Scores],
    baseline: str | None,
    columns: Sequence[Column],
) -> tuple[dict[tuple[int, str], Comparison], list[str]]:
    """(row, column key or "average") → comparison with Holm-corrected p; and the notes on it."""
    if baseline is None:
        return {}, []
    raw: dict[str, dict[int, Comparison]] = {}
    lonely: list[str] = []
    for index, row in rows.items():
        if row[0] == baseline:
            continue
        other = _baseline_of(row, rows, baseline)
        if other is None:
            lonely.append(_label(row))
            continue
        for key, result in _tests(scores[index], scores[other], columns).items():
            raw.setdefault(key, {})[index] = result
    found: dict[tuple[int, str], Comparison] = {}
    for key, results in raw.items():
        corrected = holm({i: c.p for i, c in results.items() if c.p is not None})
        for index, result in results.items():
            found[index, key] = result._replace(p=corrected.get(index))
    return found, _notes(found, rows, baseline, columns, lonely)


def _baseline_of(row: RowId, rows: Mapping[int, RowId], baseline: str) -> int | None:
    same_size = {i: r for i, r in rows.items() if r[0] == baseline and r[1] == row[1]}
    for index, other in same_size.items():
        if other[2] == row[2]:
            return index
    # A baseline without the setting that splits this method is still its baseline.
    return next(iter(same_size)) if len(same_size) == 1 else None


def _tests(method: Scores, baseline: Scores, columns: Sequence[Column]) -> dict[str, Comparison]:
    results: dict[str, Comparison | None] = {}
    # The columns of one task rise and fall together: their sum is what flips sign, as one.
    sums: dict[tuple[str, int], float] = {}
    count, averaged = 0, [column for column in columns if column.in_average]
    for column in columns:
        mine, theirs = method.get(column.key, {}), baseline.get(column.key, {})
        results[column.key] = paired_t_test(*paired(mine, theirs))
        if not column.in_average:
            continue
        for seed in mine.keys() & theirs.keys():
            unit = (column.place, seed)
            sums[unit] = sums.get(unit, 0.0) + mine[seed] - theirs[seed]
            count += 1
    if len(averaged) > 1 and all(results[column.key] is not None for column in averaged):
        flips = paired_permutation_test([sums[u] for u in sorted(sums)], [0.0] * len(sums))
        if flips is not None:
            results[AVERAGE] = flips._replace(difference=sum(sums.values()) / count)
    return {key: result for key, result in results.items() if result is not None}


def _notes(
    found: Mapping[tuple[int, str], Comparison],
    rows: Mapping[int, RowId],
    baseline: str,
    columns: Sequence[Column],
    lonely: Sequence[str],
) -> list[str]:
    notes: list[str] = []
    untested: list[str] = []
    if found:
        many = sum(column.in_average for column in columns) > 1
        average = (
            "; the average by a paired sign-flip permutation test over all (task, seed) pairs"
            if many
            else ""
        )
        notes.append(
            f"▲ above, ▼ below {baseline} with the same layers, p < {SIGNIFICANT:g}: each task by "
            f"a paired t-test over shared seeds{average}; two-sided, Holm-corrected over the rows "
            f"of a column. No mark: no difference shown."
        )
    for column in columns:
        results = {i: c for (i, key), c in found.items() if key == column.key}
        blank = [_label(rows[i]) for i, c in results.items() if c.p is None]
        if blank:
            who = "" if len(blank) == len(results) else f" ({', '.join(blank)})"
            untested.append(column.title + who)
    if untested:
        notes.append(f"Too few shared seeds, or no spread, to test: {'; '.join(untested)}.")
    if lonely:
        notes.append(f"No {baseline} run of the same layers to compare with: {', '.join(lonely)}.")
    return notes


def _label(row: RowId) -> str:
    method, layers, variant = row
    return " ".join([method, *variant]) + (f", {layers} layers" if layers else "")
