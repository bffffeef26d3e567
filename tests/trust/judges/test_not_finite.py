"""A score that is not a number supports no claim: the tests say "unknown", never p = 0."""

from __future__ import annotations

import math

import pytest

from limbeck.evaluation.compare import holm, paired_permutation_test, paired_t_test


@pytest.mark.parametrize("test", [paired_permutation_test, paired_t_test])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_a_score_that_is_not_finite_leaves_nothing_to_test(test, bad, side):
    scores = [[81.0, 82.0, 84.0], [80.0, 80.5, 80.0]]
    scores[side][1] = bad
    result = test(*scores)
    assert result is not None
    assert result.p is None
    assert result.pairs == 3


@pytest.mark.parametrize("test", [paired_permutation_test, paired_t_test])
def test_the_same_infinity_on_both_sides_is_no_tie(test):
    result = test([math.inf, 1.0, 2.0], [math.inf, 0.0, 0.5])
    assert result is not None
    assert result.p is None


def test_holm_refuses_what_is_no_p_value():
    for p in (math.nan, -0.1, 1.5):
        with pytest.raises(ValueError, match="between 0 and 1"):
            holm({"a": 0.01, "b": p})
