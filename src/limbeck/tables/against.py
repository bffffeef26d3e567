"""Paired tests of every row against a baseline method's row of the same student size.

Part of `limbeck.tables`. Runs pair when task, data, seed and student depth agree. What is tested is
what is printed: a task's mean over its seeds, and the average as the weighted mean of these means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
from limbeck.support.words import count_of
from limbeck.tables.cells import signed
from limbeck.tables.model import AVERAGE, SIGNIFICANT, TableColumn, Tested

RowId = tuple[str, int | None, tuple[str, ...]]
"""Method, student layers, values of the `by` settings."""
Scores = dict[str, dict[int, float]]
"""Column key → seed → score, of one row."""

CORRECTIONS = ("table", "column")
"""Which tests Holm's correction takes together: all of a table, or those of one column."""


VARIANCES = ("own", "pooled")
"""By which spread over seeds a difference is judged: that of its own pairs, or of all rows of the same depth."""


@dataclass(frozen=True)
class Baseline:
    """The method every other one is tested against, and how.

    Attributes:
        method: the method; None for no tests.
        correction: which p-values are Holm-corrected together: all of the "table", or those of each "column".
        variance: whose spread over seeds counts: a comparison's "own", or that "pooled" over all rows of its depth.

    Raises:
        LimbeckError: a correction or variance that does not exist.
    """

    method: str | None = None
    correction: str = "table"
    variance: str = "own"

    def __post_init__(self) -> None:
        """Check the words."""
        if self.correction not in CORRECTIONS:
            raise LimbeckError(unknown("correction", self.correction, list(CORRECTIONS)))
        if self.variance not in VARIANCES:
            raise LimbeckError(unknown("variance", self.variance, list(VARIANCES)))


def compare_rows(
    rows: Mapping[int, RowId],
    scores: Mapping[int, Scores],
    baseline: Baseline,
    columns: Sequence[TableColumn],
) -> tuple[dict[tuple[int, str], Tested], list[str]]:
    """(row, column key or "average") → test with Holm-corrected p; and the notes on them."""
    method = baseline.method
    if method is None:
        return {}, []
    found: dict[tuple[int, str], Tested] = {}
    lonely: list[str] = []
    for index, row in rows.items():
        if row[0] == method:
            continue
        other = baseline_of(row, rows, method)
        if other is None:
            lonely.append(row_label(row))
            continue
        pool = None
        if baseline.variance == "pooled":
            pool = {i: scores[i] for i, one in rows.items() if one[1] == row[1]}
        for key, result in _tests(index, other, scores, columns, pool).items():
            found[index, key] = result
    found = _corrected(found, baseline.correction)
    return found, mark_notes(found, rows, baseline, columns, lonely)


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


# What a reader must know of the marks ▲ and ▼: what was tested, over how many seeds, what was not.
# Without a significant difference a table says nothing about order.


Found = Mapping[tuple[int, str], Tested]
By = dict[str, list[tuple[str, Tested]]]
"""Title of a column or label of a row → label or title of the other, and the test there."""


def mark_notes(
    found: Found,
    rows: Mapping[int, RowId],
    baseline: Baseline,
    columns: Sequence[TableColumn],
    lonely: Sequence[str],
) -> list[str]:
    """The notes on the tests in `found`; `lonely` rows had no baseline to be tested against."""
    method = str(baseline.method)
    titles = {column.key: column.title for column in columns} | {AVERAGE: AVERAGE}
    by_column: By = {
        title: [(row_label(rows[i]), test) for (i, at), test in found.items() if at == key]
        for key, title in titles.items()
    }
    by_row: By = {
        row_label(row): [(titles[key], found[i, key]) for key in titles if (i, key) in found]
        for i, row in rows.items()
    }
    notes: list[str] = []
    if found:
        notes.append(_what_marks_are(found, baseline, columns))
        notes += _beyond_reach(by_column)
        notes += _differences(by_row, method)
    own = {title: tests for title, tests in by_column.items() if title != AVERAGE}
    untested = []
    for title, tests in own.items():
        blank = [label for label, test in tests if test.p is None]
        who = "" if len(blank) == len(tests) else f" ({', '.join(blank)})"
        untested += [title + who] if blank else []
    contradiction = "No mark, because the paired seeds point the other way than the means shown"
    for said, where in (
        ("Fewer seeds paired than shown", _where(by_column, _fewer_paired)),
        (contradiction, _where(by_column, lambda row, test: row if test.contradicts else "")),
        ("Too few shared seeds, or no spread, to test", untested),
    ):
        notes += [f"{said}: {'; '.join(where)}."] if where else []
    if lonely:
        notes.append(f"No {method} run of the same layers to compare with: {', '.join(lonely)}.")
    return notes


def _what_marks_are(found: Found, baseline: Baseline, columns: Sequence[TableColumn]) -> str:
    """Which tests the marks are of."""
    each, average = (
        (
            "by t-tests with the spread over seeds pooled over all methods of the same layers",
            "; the average likewise, for these tasks alone",
        )
        if baseline.variance == "pooled"
        else (
            "by a paired t-test over shared seeds",
            "; the average by a paired sign-flip permutation test over (task, seed) pairs, every "
            "task weighing what it weighs in the average, and for these tasks alone",
        )
    )
    several = sum(column.in_average for column in columns) > 1
    tested = sum(test.p is not None for test in found.values())
    together = (
        f"over the {tested} tests of this table"
        if baseline.correction == "table"
        else "over the rows of a column"
    )
    pairs = [test.pairs for (_, key), test in found.items() if key != AVERAGE]
    counts = "–".join(str(count) for count in sorted({min(pairs), max(pairs)}))
    return (
        f"▲ above, ▼ below {baseline.method} with the same layers, p < {SIGNIFICANT:g}: each task {each} "
        f"({counts} seed{'s' * (counts != '1')} paired){average * several}; two-sided, Holm-corrected {together}. The "
        "dev rows are held fixed. No mark: no difference shown, which is not that there is none."
    )


def _beyond_reach(by_column: By) -> list[str]:
    """Columns in which the smallest p that the test can reach is no mark, whatever the scores are."""
    said = []
    for title, tests in by_column.items():
        bounds = [test.smallest for _, test in tests if test.smallest is not None]
        if bounds:
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


def _differences(by_row: By, baseline: str) -> list[str]:
    """By row each difference with its interval and p."""
    said = []
    for label, tests in by_row.items():
        parts = []
        for title, test in tests:
            part = f"{title} {signed(test.difference)}"
            if test.low is not None and test.high is not None:
                part += f" ({signed(test.low)} to {signed(test.high)})"
            if test.p is not None:
                part += ", p < 0.001" if test.p < 0.001 else f", p {test.p:.2g}"
            parts.append(part)
        said += [f"{label}: {'; '.join(parts)}"] if parts else []
    lead = f"Less {baseline}, each with its own 95 % interval and the corrected p. "
    return [f"{lead}{'. '.join(said)}."] if said else []


def row_label(row: RowId) -> str:
    """A row as notes name it: method, settings, depth."""
    method, layers, variant = row
    return " ".join([method, *variant]) + (f", {count_of(layers, 'layer')}" if layers else "")


def _fewer_paired(row: str, test: Tested) -> str:
    return f"{row}: {test.pairs}" if test.pairs < test.runs else ""


def _where(by_column: By, say: Callable[[str, Tested], str]) -> list[str]:
    """Columns with what is said of their rows, where anything is."""
    said = {title: [say(*one) for one in tests] for title, tests in by_column.items()}
    return [
        f"{title} ({', '.join(filter(None, some))})" for title, some in said.items() if any(some)
    ]
