"""Paired tests of every row against a baseline method's row of the same student size.

Part of `limbeck.tables`. Runs pair when task, data, seed and student depth agree. What is tested is
what is printed: a task's mean over its seeds, and the average as the weighted mean of these means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from limbeck.evaluation.compare import (
    Comparison,
    Spread,
    by_t,
    holm,
    paired,
    paired_permutation_test,
    paired_t_test,
    pooled_spread,
    pooled_t_test,
    smallest_p,
)
from limbeck.support.errors import LimbeckError, unknown
from limbeck.tables.marks import RowId, mark_notes, row_label
from limbeck.tables.model import TableColumn, Tested

Scores = dict[str, dict[int, float]]
"""Column key → seed → score, of one row."""

AVERAGE = "average"

CORRECTIONS = ("table", "column")
"""Which tests Holm's correction takes together: all of a table, or those of one column."""


VARIANCES = ("own", "pooled")
"""By which spread over seeds a difference is judged: that of its own pairs, or of all rows of the same depth."""


def check_variance(variance: str) -> None:
    """Raises LimbeckError for a variance that does not exist."""
    if variance not in VARIANCES:
        raise LimbeckError(unknown("variance", variance, list(VARIANCES)))


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
    variance: str = "own",
) -> tuple[dict[tuple[int, str], Tested], list[str]]:
    """(row, column key or "average") → test with Holm-corrected p; and the notes on them."""
    if baseline is None:
        return {}, []
    found: dict[tuple[int, str], Tested] = {}
    lonely: list[str] = []
    for index, row in rows.items():
        if row[0] == baseline:
            continue
        other = baseline_of(row, rows, baseline)
        if other is None:
            lonely.append(row_label(row))
            continue
        pool = None
        if variance == "pooled":
            pool = {i: scores[i] for i, one in rows.items() if one[1] == row[1]}
        for key, result in _tests(index, other, scores, columns, pool).items():
            found[index, key] = result
    found = _corrected(found, correction)
    return found, mark_notes(found, rows, baseline, columns, lonely, correction, variance)


def _corrected(
    found: Mapping[tuple[int, str], Tested], correction: str
) -> dict[tuple[int, str], Tested]:
    families: dict[str, dict[tuple[int, str], float]] = {}
    for (index, key), test in found.items():
        if test.p is not None:
            family = key if correction == "column" else correction
            families.setdefault(family, {})[index, key] = test.p
    p_values = {cell: p for family in families.values() for cell, p in holm(family).items()}

    def smallest(cell: tuple[int, str], bound: float | None) -> float | None:
        if bound is None or found[cell].p is None:
            return None
        family = families[cell[1] if correction == "column" else correction]
        # Tests of other columns that are smaller come before it, and leave fewer to correct for.
        before = sum(p < bound for (_, key), p in family.items() if key != cell[1])
        return min(1.0, bound * (len(family) - before))

    return {
        cell: test._replace(p=p_values.get(cell), smallest=smallest(cell, test.smallest))
        for cell, test in found.items()
    }


def baseline_of(row: RowId, rows: Mapping[int, RowId], baseline: str) -> int | None:
    """The baseline's row that a row is held against: as deep, and if need be of the same settings."""
    same_size = {i: r for i, r in rows.items() if r[0] == baseline and r[1] == row[1]}
    for index, other in same_size.items():
        if other[2] == row[2]:
            return index
    # A baseline without the setting that splits this method is still its baseline.
    return next(iter(same_size)) if len(same_size) == 1 else None


def _tests(
    row: int,
    other: int,
    scores: Mapping[int, Scores],
    columns: Sequence[TableColumn],
    pool: Mapping[int, Scores] | None,
) -> dict[str, Tested]:
    """Of one row against another; `pool`: the rows by which the variance is pooled."""
    method, baseline = scores[row], scores[other]
    results: dict[str, Tested] = {}
    for column in columns:
        mine, theirs = method.get(column.key, {}), baseline.get(column.key, {})
        compared = paired_t_test(*paired(mine, theirs))
        if pool is not None and compared is not None:
            known = {at: one[column.key] for at, one in pool.items() if one.get(column.key)}
            compared = pooled_t_test(known, row, other) or compared
        if compared is not None:
            shown = _mean(mine) - _mean(theirs)
            results[column.key] = _tested(compared, shown, max(len(mine), len(theirs)))
    averaged = [column for column in columns if column.in_average]
    if len(averaged) > 1 and all(column.key in results for column in averaged):
        total = sum(column.weight for column in averaged)
        shown = sum(column.weight * results[column.key].shown for column in averaged) / total
        compared = None if pool is None else _pooled_average(pool, row, other, averaged)
        bound = None
        if compared is None:
            compared = _average_test(method, baseline, averaged)
            bound = smallest_p(compared.pairs)
        results[AVERAGE] = _tested(compared, shown, compared.pairs)._replace(smallest=bound)
    return results


def _tested(compared: Comparison, shown: float, runs: int) -> Tested:
    return Tested(
        compared.difference, compared.p, compared.pairs, shown, runs,
        compared.low, compared.high, compared.margin,
    )  # fmt: skip


def _pooled_average(
    pool: Mapping[int, Scores], row: int, other: int, columns: Sequence[TableColumn]
) -> Comparison | None:
    """The average by the pooled variance of each task, whose columns are taken together; None where one has none."""
    total = sum(column.weight for column in columns)
    places: dict[str, list[TableColumn]] = {}
    for column in columns:
        places.setdefault(column.place, []).append(column)
    parts = []
    for own in places.values():
        summed = {
            at: {
                seed: sum(column.weight * one[column.key][seed] for column in own) / total
                for seed in set[int].intersection(*({*one.get(column.key, {})} for column in own))
            }
            for at, one in pool.items()
        }
        known = {at: seeds for at, seeds in summed.items() if seeds}
        part = pooled_spread(known, row, other) if {row, other} <= known.keys() else None
        if part is None:
            return None
        parts.append(part)
    difference = sum(difference for difference, _ in parts)
    pairs = sum(len(pool[row][own[0].key]) for own in places.values())
    return by_t(difference, [spread for _, spread in parts], pairs)


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
    # The interval is that of the tasks' own spreads over seeds; tasks differ in size, which is no chance.
    places = sorted({place for place, _ in parts})
    spreads = []
    for place in places:
        own = [part for (at, _), part in sorted(parts.items()) if at == place]
        if len(own) < 2:
            return Comparison(sum(values), flips.p, flips.pairs)
        spreads.append(Spread(len(own) * float(np.var(own, ddof=1)), len(own) - 1))
    return by_t(sum(values), spreads, flips.pairs)._replace(p=flips.p)


def _mean(by_seed: Mapping[int, float]) -> float:
    return sum(by_seed.values()) / len(by_seed)
