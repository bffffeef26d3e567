"""Thresholds of several labels a row: tuned against every possible one, and read from a configuration."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import f1_score

from limbeck.support.errors import LimbeckError
from limbeck.tasks.rules import best_threshold, cross_decided, decided, thresholds_of


@pytest.mark.parametrize("seed", range(3))
def test_no_threshold_is_better(seed):
    generator = np.random.default_rng(seed)
    right = generator.integers(0, 2, 40)
    likely = np.clip(0.3 * right + generator.random(40).round(1) * 0.7, 0, 1)
    found = best_threshold(likely, right)
    candidates = [0.0, *np.unique(likely), 1.1]
    best = max(f1_score(right, likely >= one, zero_division=0) for one in candidates)
    assert f1_score(right, likely >= found) == pytest.approx(best, abs=1e-12)


def test_by_hand():
    # Of .9 .8 | .4 .1 the first two are right: half-way between .8 and .4.
    likely = np.array([0.1, 0.9, 0.4, 0.8])
    assert best_threshold(likely, np.array([0, 1, 0, 1])) == pytest.approx(0.6)
    # All right: anything below .1 does, half-way down to 0.
    assert best_threshold(likely, np.ones(4)) == pytest.approx(0.05)
    assert best_threshold(likely, np.zeros(4)) == 0.5
    # .55 and .2 are as good as each other: one hit among one, or among no more than it.
    assert best_threshold(np.array([0.7, 0.4, 0.0]), np.array([1, 0, 0])) == pytest.approx(0.55)


def test_equal_probabilities_are_taken_together():
    likely, right = np.array([0.5, 0.5, 0.5, 0.2]), np.array([1, 0, 0, 1])
    found = best_threshold(likely, right)
    assert found == pytest.approx(0.1)  # 2·2/(4 + 2) is more than 2·1/(3 + 2)
    # Rounding sets none of them apart: between .5 and .49999999 another runtime decides otherwise.
    likely[1:3] -= 1e-8
    assert best_threshold(likely, right) == pytest.approx(0.1)
    one = np.array([0.7, 0.7 - 1e-8, 0.2])
    assert best_threshold(one, np.array([1, 0, 0])) == pytest.approx(0.45, abs=1e-6)


def test_one_for_all_or_one_for_each():
    likely = np.array([[0.9, 0.3], [0.8, 0.1], [0.2, 0.05]])
    labels = np.array([[1, 1], [1, 0], [0, 0]])
    assert decided("by_class", likely, labels) == pytest.approx([0.5, 0.2])
    one = decided("one", likely, labels)
    assert one[0] == one[1] == pytest.approx(0.25)
    assert decided(0.4, likely, labels).tolist() == [0.4, 0.4]
    assert decided((0.1, 0.2), likely, labels).tolist() == [0.1, 0.2]


def test_of_a_configuration():
    assert thresholds_of(SimpleNamespace(num_labels=2)) is None
    given = SimpleNamespace(num_labels=2, label_thresholds=[0.1, 1])
    assert thresholds_of(given) == (0.1, 1.0)
    for wrong in ([0.1], [0.1, 2], ["a", 0.1], 0.5, [0.1, True]):
        given.label_thresholds = wrong
        with pytest.raises(LimbeckError, match="label_thresholds"):
            thresholds_of(given)


def test_a_row_is_scored_by_thresholds_that_it_did_not_tune():
    random = np.random.default_rng(0)
    likely = random.random((60, 3))
    labels = (random.random((60, 3)) < [0.5, 0.3, 0.1]).astype(float)
    own = cross_decided("by_class", likely, labels)
    for row in range(60):
        changed = labels.copy()
        changed[row] = (
            1 - changed[row]
        )  # parts may change too, where its rarest class does: of all rows its own alone
        alone = cross_decided("by_class", likely, labels, parts=60)
        other = cross_decided("by_class", likely, changed, parts=60)
        assert np.array_equal(alone[row], other[row])
    assert own.shape == (60, 3) and len(np.unique(own, axis=0)) <= 5
    assert np.array_equal(cross_decided(0.4, likely, labels), np.full((60, 3), 0.4))


def test_noise_scores_as_noise_where_thresholds_are_cross_fitted():
    # Probabilities say nothing: what tuned thresholds gain on their own rows is gone on others.
    random = np.random.default_rng(1)
    tuned, crossed = [], []
    for _ in range(20):
        likely = random.random((80, 5))
        labels = (random.random((80, 5)) < 0.1).astype(float)
        for scores, at in (
            (tuned, decided("by_class", likely, labels)),
            (crossed, cross_decided("by_class", likely, labels)),
        ):
            scores.append(f1_score(labels, likely >= at, average="macro", zero_division=0))
    fresh = f1_score(labels, np.ones_like(labels), average="macro", zero_division=0)
    assert np.mean(tuned) > np.mean(crossed) + 0.05 and np.mean(crossed) < fresh + 0.05
