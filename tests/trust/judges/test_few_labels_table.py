"""The table and picture of few labels and much text: shares by hand, families of tests, places of conditions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

ALONE = {1: 70.0, 2: 72.0, 3: 74.0}
TEACHER = {1: 80.0, 2: 84.0, 3: 82.0}


@pytest.fixture
def table(benchmarks):
    return benchmarks("few_labels_table")


def line(table, condition, scores, labels=1000):
    return table.Line(("sst2", labels), condition, 0, scores, ALONE, TEACHER)


def test_shares_of_the_gap_by_hand(table):
    # Means 72, 82 and 79: seven of ten points, whichever seed has the better rows.
    share, low, high = line(table, "unlabelled", {1: 77.0, 2: 81.0, 3: 79.0}).gap
    assert share == pytest.approx(70)
    assert low < share < high
    assert line(table, "teacher", TEACHER).gap is None
    assert line(table, "labels alone", ALONE).gap is None
    # A teacher that learned no more than the student leaves no gap to close.
    behind = table.Line(("sst2", 200), "unlabelled", 0, TEACHER, ALONE, ALONE)
    assert behind.gap is None and behind.p is not None


def test_a_shares_interval_holds_what_a_t_test_does_not_reject(table):
    gained, gap = np.array([4.0, 6.5, 5.0, 7.0]), np.array([7.0, 8.0, 6.5, 9.5])
    share, low, high = table.fieller(gained, gap)
    assert share == pytest.approx(100 * 22.5 / 31)
    for end in (low, high):
        assert stats.ttest_1samp(gained - end / 100 * gap, 0).pvalue == pytest.approx(0.05)
    # A gap that may be none has no share that is out of the question.
    assert table.fieller(gained, np.array([-3.0, 4.0, 2.0, -1.0]))[1:] == (-np.inf, np.inf)


def test_tests_of_one_number_of_labels_are_one_family(table):
    """A student's p-value does not depend on how many other numbers of labels were run."""
    better = {1: 77.0, 2: 81.0, 3: 80.0}
    one = [line(table, "unlabelled", better), line(table, "augmented", {1: 71, 2: 70, 3: 78})]
    more = [line(table, "unlabelled", better, labels) for labels in (200, 5000)]
    assert table.cells(one) == table.cells([*one, *more])[:2]
    # Alone in its family it keeps its own p-value; beside another it counts twice.
    single, double = (float(rows[0][7]) for rows in (table.cells(one[:1]), table.cells(one)))
    assert double == pytest.approx(2 * single, abs=0.0015)


def test_a_condition_and_its_rows(table):
    assert table.condition_of("pseudo-labels (10,000 rows)") == ("pseudo-labels", 10_000)
    assert table.condition_of("unlabelled, layers") == ("unlabelled, layers", None)


@pytest.mark.drawn
def test_the_picture_is_drawn_from_records_alone(table, tmp_path):
    lines = [
        line(table, name, scores, labels)
        for labels in (5000, 200)
        for name, scores in (("labels alone", ALONE), ("teacher", TEACHER))
    ]
    paths = [tmp_path / f"{number}.svg" for number in range(2)]
    for path in paths:
        table.picture(lines, "sst2", path)
    first, second = (path.read_text(encoding="utf-8") for path in paths)
    assert first == second
    assert all(f">{word}<" in first for word in ("teacher", "labels alone", "5,000"))
