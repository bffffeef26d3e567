"""Oracles: R's sleep data (Student 1908), Holm's procedure by hand, counted sign flips."""

from __future__ import annotations

import pytest

from limbeck.evaluation.compare import (
    holm,
    paired,
    paired_permutation_test,
    paired_t_test,
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
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_t_test([1.0], [])


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
