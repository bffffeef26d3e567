"""Oracles: R's sleep data (Student 1908), Holm's procedure by hand, counted sign flips."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from limbeck.evaluation.compare import (
    by_t,
    holm,
    over_rows,
    paired,
    paired_permutation_test,
    paired_t_test,
    pooled,
    seeds_and_rows,
    smallest_p,
    summary,
)

# R's `sleep`: extra hours of sleep of ten patients under two drugs.
FIRST = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SECOND = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def test_t_test_on_students_sleep_data():
    # R: t.test(..., paired = TRUE): t = -4.0621, df = 9, p-value = 0.002833, mean -1.58
    result = paired_t_test(FIRST, SECOND)
    assert result is not None
    assert result.difference == pytest.approx(-1.58)
    assert result.p == pytest.approx(0.002833, abs=5e-7)
    assert result.pairs == 10


def test_three_seeds_by_hand():
    # Differences 1, 2, 3: t = 2 / (1 / √3) = 3.464 on 2 degrees of freedom; for 2 degrees
    # p = 1 − t / √(t² + 2) = 1 − √(12/14) = 0.07418.
    result = paired_t_test([81.0, 82.0, 83.0], [80.0, 80.0, 80.0])
    assert result is not None
    assert result.p == pytest.approx(0.0741799, abs=1e-7)


@pytest.mark.parametrize(
    ("method", "baseline", "difference", "p"),
    [
        ([80.0, 81.0], [80.0, 81.0], 0.0, 1.0),
        ([80.3, 81.3, 82.3], [80.0, 81.0, 82.0], 0.3, None),  # differs by rounding only
        ([80.0], [79.0], 1.0, None),
    ],
)
def test_degenerate_pairs_claim_nothing(method, baseline, difference, p):
    result = paired_t_test(method, baseline)
    assert result is not None
    assert result.difference == pytest.approx(difference)
    assert result.p == p


def test_no_pairs_no_comparison():
    assert paired_t_test([], []) is None
    assert paired_permutation_test([], []) is None


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2 / 64),  # only all-plus and all-minus are as far out
        ([1.0, 1.0, 1.0, 1.0], 2 / 16),
        ([3.0, 2.0, -1.0], 4 / 8),  # |mean| ≥ 4/3: +++, ++−, and their mirrors
        ([0.0, 0.0, 0.0], 1.0),
    ],
)
def test_permutation_test_counts_sign_flips(differences, p):
    result = paired_permutation_test([50 + d for d in differences], [50.0] * len(differences))
    assert result is not None
    assert result.p == pytest.approx(p)


def test_many_pairs_are_drawn_reproducibly():
    method = [60 + 0.1 * i for i in range(30)]
    baseline = [60 + 0.1 * ((7 * i) % 30) for i in range(30)]
    first = paired_permutation_test(method, baseline, seed=1)
    assert first == paired_permutation_test(method, baseline, seed=1)
    assert first is not None
    assert first.p is not None
    assert first.p > 0.5  # the same thirty numbers on both sides: no difference at all


def test_holm_by_hand():
    # m = 4, sorted .005 .01 .03 .04: ×4 .02, ×3 .03, ×2 .06, ×1 .04 → lifted to .06
    corrected = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert corrected == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert holm({"x": 0.9, "y": 0.8}) == {"y": 1.0, "x": 1.0}
    assert holm({}) == {}


def test_pairs_are_the_keys_both_have():
    assert paired({1: 80.0, 2: 81.0, 4: 9.0}, {2: 70.0, 1: 71.0, 3: 0.0}) == (
        [80.0, 81.0],
        [71.0, 70.0],
    )


def test_summary_uses_the_sample_deviation():
    assert summary([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == (5.0, pytest.approx(2.13809, 1e-5))
    assert summary([3.0]) == (3.0, None)
    assert summary([]) == (None, None)


# --- intervals, pooled variance, seeds and rows ---------------------------------------------------


def test_the_interval_and_the_margin_of_a_paired_test_are_scipys():
    differences = np.array([0.4, 1.1, -0.2, 0.9, 0.6])
    found = paired_t_test(differences, np.zeros(5))
    alone = stats.ttest_1samp(differences, 0.0)
    low, high = alone.confidence_interval(0.95)
    assert (found.p, found.low, found.high) == pytest.approx((alone.pvalue, low, high))
    wide = alone.confidence_interval(0.90)
    assert found.margin == pytest.approx(max(abs(wide.low), abs(wide.high)))
    # Equal within it: both one-sided tests are at 5 % there.
    above = stats.ttest_1samp(differences, -found.margin, alternative="greater").pvalue
    below = stats.ttest_1samp(differences, found.margin, alternative="less").pvalue
    assert max(above, below) == pytest.approx(0.05)


def test_pooled_variance_by_hand():
    # Three methods by two seeds. Means 1, 3, 2 and by seed 5/3, 7/3; residuals of ±1/6, ±1/6, ±1/3:
    # squares 2/36 + 2/36 + 2/9 = 1/3 over 2 degrees of freedom; variance 2 · 1/6 / 2 = 1/6.
    scores = {"a": {1: 0.5, 2: 1.5}, "b": {1: 2.5, 2: 3.5}, "c": {1: 2.0, 2: 2.0}}
    found = pooled_test(scores, "b", "a")
    assert found.difference == pytest.approx(2.0)
    assert found.p == pytest.approx(2 * stats.t.sf(2.0 / (1 / 6) ** 0.5, 2))
    assert found.high - found.difference == pytest.approx((1 / 6) ** 0.5 * 4.302653, rel=1e-6)
    # Of two methods it is the paired t-test itself.
    two = {name: scores[name] for name in ("b", "c")}
    alone = paired_t_test([2.5, 3.5], [2.0, 2.0])
    assert pooled_test(two, "b", "c")[1:] == pytest.approx(alone[1:])
    assert pooled({"a": {1: 0.5}, "b": {1: 1.0}}, "a", "b") is None


def test_a_method_that_lacks_a_seed_does_not_undo_the_pool():
    scores = {"a": {1: 0.5, 2: 1.5}, "b": {1: 2.5, 2: 3.5}, "c": {1: 2.0, 2: 2.0}}
    lacking = {"one seed": {1: 9.0}, "none": {}, "no number": {1: 1.0, 2: float("nan")}}
    assert pooled_test(scores | lacking, "b", "a") == pooled_test(scores, "b", "a")
    assert pooled(scores | lacking, "b", "a").methods == 3
    assert all(pooled(scores | lacking, name, "a") is None for name in lacking)
    # A third seed that two methods have: these two alone, hence their own paired t-test over all three seeds.
    more = scores | {"a": {1: 0.5, 2: 1.5, 3: 1.0}, "b": {1: 2.5, 2: 3.5, 3: 2.2}}
    alone = paired_t_test([2.5, 3.5, 2.2], [0.5, 1.5, 1.0])
    assert pooled_test(more, "b", "a") == pytest.approx(alone)
    assert pooled(more, "b", "a").methods == 2
    assert pooled(more, "c", "a").methods == 3


def pooled_test(scores, method, baseline):
    found = pooled(scores, method, baseline)
    return by_t(found.difference, [found.spread], found.pairs)


def test_smallest_p_is_that_of_pairs_that_all_point_one_way():
    for pairs in (3, 6, 9):
        steady = paired_permutation_test(
            [1.0 + number / 10 for number in range(pairs)], [0.0] * pairs
        )
        assert smallest_p(pairs) == pytest.approx(steady.p)
    # Nine pairs and 48 rows: no row of such a column can bear a mark, whatever the data.
    assert 48 * smallest_p(9) == pytest.approx(0.1875)


def test_rows_left_out_one_by_one_give_the_variance_of_a_mean():
    values = np.random.default_rng(1).normal(size=40)
    without = np.array([np.delete(values, row).mean() for row in range(40)])
    assert over_rows(without).variance == pytest.approx(values.var(ddof=1) / 40)


@pytest.mark.slow
def test_seeds_and_rows_together_hold_their_level():
    """No difference at all: rows and seeds both vary. Seeds alone, or rows alone, find one far too often."""
    rng, found = np.random.default_rng(7), {"both": 0, "seeds": 0}
    for _ in range(1500):
        rows, seeds = rng.normal(0, 1.0, 60), rng.normal(0, 0.15, 4)
        gaps = rows[None] + seeds[:, None] + rng.normal(0, 0.3, (4, 60))
        means, by_row = gaps.mean(axis=1), gaps.mean(axis=0)
        without = (by_row.sum() - by_row) / 59
        found["both"] += seeds_and_rows(means, without).p < 0.05
        found["seeds"] += paired_t_test(means, np.zeros(4)).p < 0.05
    assert found["both"] / 1500 < 0.075
    assert found["seeds"] / 1500 > 0.15
