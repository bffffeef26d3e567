"""Paired tests of every row against a baseline method's row of the same student size.

Part of `limbeck.tables`. Runs pair when task, data, seed and student depth agree. The tested values are
the printed ones: a task's mean over its seeds, and the average as the weighted mean of these means.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from limbeck.evaluation import compare
from limbeck.records.words import grouped
from limbeck.support import words
from limbeck.support.cells import signed
from limbeck.support.errors import check_choice
from limbeck.tables.model import AVERAGE, SIGNIFICANT, TableColumn, Tested

RowId = tuple[str, int | None, tuple[str, ...]]
"""Method, student layers, values of the `by` settings."""
Scores = dict[str, dict[int, float]]
"""Column key → seed → score, of one row."""

CORRECTIONS = ("table", "column")
"""The tests in one Holm correction: all of a table, or all of one column."""


VARIANCES = ("own", "pooled")
"""The spread over seeds that a difference is judged by: its own pairs, or all rows with its depth and seeds."""


@dataclass(frozen=True)
class Baseline:
    """The method every other one is tested against, and how.

    Attributes:
        method: the method; None for no tests.
        correction: which p-values are Holm-corrected together: all of the "table", or all of each "column".
        variance: whose spread over seeds counts: a comparison's "own", or that "pooled" over all rows of its depth and
            seeds.

    Raises:
        LimbeckError: a correction or variance that does not exist.
    """

    method: str | None = None
    correction: str = "table"
    variance: str = "own"

    def __post_init__(self) -> None:
        """Check the words."""
        check_choice("correction", self.correction, CORRECTIONS)
        check_choice("variance", self.variance, VARIANCES)


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
    tested = {cell: test.p for cell, test in found.items() if test.p is not None}
    families = grouped(tested, lambda cell: cell[1] if correction == "column" else "")
    corrected = dict(found)
    for cells in families.values():
        p_values = compare.holm({cell: tested[cell] for cell in cells})
        for cell in cells:
            bound = found[cell].smallest
            if bound is not None:
                # Tests of other columns that are smaller come before it, and leave fewer to correct for.
                before = sum(tested[one] < bound for one in cells if one[1] != cell[1])
                bound = min(1.0, bound * (len(cells) - before))
            corrected[cell] = found[cell]._replace(p=p_values[cell], smallest=bound)
    untested = found.keys() - tested.keys()
    return corrected | {cell: found[cell]._replace(smallest=None) for cell in untested}


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
    """Tests of one row against another; `pool`: the rows by which the variance is pooled."""
    method, baseline = scores[row], scores[other]
    results: dict[str, Tested] = {}
    for column in columns:
        mine, theirs = method.get(column.key, {}), baseline.get(column.key, {})
        compared = compare.paired_t_test(*compare.paired(mine, theirs))
        alone = False
        if pool is not None and compared is not None:
            known = {at: one.get(column.key, {}) for at, one in pool.items()}
            found = compare.pooled(known, row, other)
            if found is not None:
                compared = compare.by_t(found.difference, [found.spread], found.pairs)
                alone = found.methods == 2
        if compared is not None:
            shown = _mean(mine) - _mean(theirs)
            runs = max(len(mine), len(theirs))
            results[column.key] = _tested(compared, shown, runs)._replace(alone=alone)
    averaged = [column for column in columns if column.in_average]
    if len(averaged) > 1 and all(column.key in results for column in averaged):
        total = sum(column.weight for column in averaged)
        shown = sum(column.weight * results[column.key].shown for column in averaged) / total
        together = None if pool is None else _pooled_average(pool, row, other, averaged)
        bound = None
        if together is not None:
            compared, alone = together
        else:
            compared, alone = _average_test(method, baseline, averaged), pool is not None
            bound = compare.smallest_p(compared.pairs)
        average = _tested(compared, shown, compared.pairs)
        results[AVERAGE] = average._replace(smallest=bound, alone=alone)
    return results


def _tested(compared: compare.Comparison, shown: float, runs: int) -> Tested:
    return Tested(
        compared.difference, compared.p, compared.pairs, shown, runs,
        compared.low, compared.high, compared.margin,
    )  # fmt: skip


def _pooled_average(
    pool: Mapping[int, Scores], row: int, other: int, columns: Sequence[TableColumn]
) -> tuple[compare.Comparison, bool] | None:
    """The average by the pooled variance of each task, whose columns are taken together; None if one is missing.

    The flag is true if only the two rows estimate the variance of a task.
    """
    total = sum(column.weight for column in columns)
    places: dict[str, list[TableColumn]] = {}
    for column in columns:
        places.setdefault(column.place, []).append(column)
    parts = []
    for own in places.values():
        known = {
            at: {
                seed: sum(column.weight * one[column.key][seed] for column in own) / total
                for seed in set[int].intersection(*({*one.get(column.key, {})} for column in own))
            }
            for at, one in pool.items()
        }
        part = compare.pooled(known, row, other)
        if part is None:
            return None
        parts.append(part)
    difference, pairs = sum(part.difference for part in parts), sum(part.pairs for part in parts)
    alone = any(part.methods == 2 for part in parts)
    return compare.by_t(difference, [part.spread for part in parts], pairs), alone


def _average_test(
    method: Scores, baseline: Scores, columns: Sequence[TableColumn]
) -> compare.Comparison:
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
    flips = compare.paired_permutation_test(values, [0.0] * len(values))
    assert flips is not None  # there is a pair in every column
    # The interval uses the tasks' own spreads over seeds; tasks differ in size, which is not random.
    places = sorted({place for place, _ in parts})
    spreads = []
    for place in places:
        own = [part for (at, _), part in sorted(parts.items()) if at == place]
        if len(own) < 2:
            return compare.Comparison(sum(values), flips.p, flips.pairs)
        spreads.append(compare.Spread(len(own) * float(np.var(own, ddof=1)), len(own) - 1))
    return compare.by_t(sum(values), spreads, flips.pairs)._replace(p=flips.p)


def _mean(by_seed: Mapping[int, float]) -> float:
    return sum(by_seed.values()) / len(by_seed)


# Notes on the marks ▲ and ▼: the test, the number of seeds, and the comparisons that were not tested.
# Without a significant difference a table shows no order.


Found = Mapping[tuple[int, str], Tested]
Named = list[tuple[str, str, Tested]]
"""Label of a row, title of a column, and the test there."""


def mark_notes(
    found: Found,
    rows: Mapping[int, RowId],
    baseline: Baseline,
    columns: Sequence[TableColumn],
    lonely: Sequence[str],
) -> list[str]:
    """The notes on the tests in `found`; `lonely` rows had no baseline to be tested against."""
    titles = {column.key: column.title for column in columns} | {AVERAGE: AVERAGE}
    # By row, and within each in the order of the columns.
    tests: Named = [
        (row_label(row), titles[key], found[index, key])
        for index, row in rows.items()
        for key in titles
        if (index, key) in found
    ]
    notes = [_what_marks_are(found, baseline, columns)] if tests else []
    for title in titles.values():
        bounds = [
            test.smallest for _, own, test in tests if own == title and test.smallest is not None
        ]
        if bounds:
            notes.append(_reach(title, min(bounds)))
    if tests:
        by_row = grouped(tests, lambda one: one[0])
        said = [
            f"{label}: {'; '.join(_difference(title, test) for _, title, test in own)}"
            for label, own in by_row.items()
        ]
        lead = f"Less {baseline.method}, each with its own 95 % interval and the corrected p."
        notes.append(f"{lead} {'. '.join(said)}.")
    contradiction = "No mark, because the paired seeds point the other way than the means shown"
    own = [one for one in tests if one[1] != AVERAGE]
    for lead, where in (
        (
            "Fewer seeds paired than shown",
            [(f"{row}: {t.pairs}", title, t) for row, title, t in tests if t.pairs < t.runs],
        ),
        (contradiction, [one for one in tests if one[2].contradicts]),
        ("Too few shared seeds, or no spread, to test", [one for one in own if one[2].p is None]),
        (
            "Not pooled, because no other row has the seeds",
            [one for one in tests if one[2].alone and one[2].p is not None],
        ),
    ):
        by_title = grouped(where, lambda one: one[1])
        parts = [
            f"{title} ({', '.join(row for row, _, _ in by_title[title])})"
            for title in titles.values()
            if title in by_title
        ]
        notes += [f"{lead}: {'; '.join(parts)}."] if parts else []
    if lonely:
        who = ", ".join(lonely)
        notes.append(f"No {baseline.method} run of the same layers to compare with: {who}.")
    return notes


def _what_marks_are(found: Found, baseline: Baseline, columns: Sequence[TableColumn]) -> str:
    """Which tests the marks are of."""
    each, average = (
        (
            "by t-tests with the spread over seeds pooled over all methods of the same layers and seeds",
            "; the average in the same way, for only these tasks",
        )
        if baseline.variance == "pooled"
        else (
            "by a paired t-test over shared seeds",
            "; the average by a paired sign-flip permutation test over (task, seed) pairs, every "
            "task with its weight in the average, and for only these tasks",
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
        "scored rows are held fixed. No mark means that no difference was shown, not that there is no difference."
    )


def _reach(title: str, bound: float) -> str:
    """The smallest p that a column's test can reach, and a note if it is too large for a mark."""
    reached = f"{title}: the smallest p that it could reach is {bound:.2g} (Holm-corrected)"
    if bound < SIGNIFICANT:
        return f"{reached}."
    return (
        f"{reached}, so that no row can get a mark at any scores: take more seeds, --variance pooled, or "
        "--correction column."
    )


def _difference(title: str, test: Tested) -> str:
    """A difference with its interval and p."""
    said = f"{title} {signed(test.difference)}"
    if test.low is not None and test.high is not None:
        said += f" ({signed(test.low)} to {signed(test.high)})"
    if test.p is not None:
        said += ", p < 0.001" if test.p < 0.001 else f", p {test.p:.2g}"
    return said


def row_label(row: RowId) -> str:
    """A row as notes name it: method, settings, depth."""
    method, layers, variant = row
    return " ".join([method, *variant]) + (f", {words.count_of(layers, 'layer')}" if layers else "")
