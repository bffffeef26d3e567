"""Calibration against a loop over bins, and numbers worked out by hand."""

import math

import numpy as np
import pytest

from limbeck.evaluation.calibration import calibration_error, reliability, unbiased_error


def test_four_examples_by_hand() -> None:
    # Predicted with probabilities .9, .9, .6 and .55; the second and the third are wrong.
    found = reliability(np.array([0.9, 0.9, 0.6, 0.55]), np.array([1.0, 0, 0, 1]), bins=2)
    # One bin holds them all: half are right, the mean confidence is 2.95 / 4.
    assert [part.rows for part in found] == [0, 4]
    assert (found[1].confidence, found[1].accuracy) == (pytest.approx(0.7375), 0.5)
    assert calibration_error(found) == pytest.approx(0.2375)
    assert found[0].accuracy is None


def test_bins_are_told_apart() -> None:
    found = reliability(np.array([0.9, 0.95, 0.62, 0.68]), np.array([1.0, 1, 1, 0]), bins=5)
    # (.8, 1]: both right at .925; (.6, .8]: one of two at .65.
    assert [part.rows for part in found] == [0, 0, 0, 2, 2]
    assert calibration_error(found) == pytest.approx(0.5 * 0.075 + 0.5 * 0.15)


def test_the_error_is_that_of_a_loop() -> None:
    random = np.random.default_rng(2)
    confidence, right = random.uniform(0.2, 1, 200), random.random(200) < 0.6
    bins: dict[int, list[tuple[float, bool]]] = {}
    for sure, hit in zip(confidence, right, strict=True):
        bins.setdefault(math.ceil(sure * 15), []).append((sure, hit))
    gaps = (abs(sum(h for _, h in one) - sum(s for s, _ in one)) for one in bins.values())
    found = reliability(confidence, right.astype(float))
    assert calibration_error(found) == pytest.approx(sum(gaps) / 200)
    assert {n + 1: part.rows for n, part in enumerate(found) if part.rows} == {
        n: len(members) for n, members in bins.items()
    }


def test_one_who_is_sure_and_right_is_perfect() -> None:
    found = reliability(np.ones(3), np.ones(3))
    assert calibration_error(found) == 0
    assert found[-1].rows == 3


def test_what_a_perfect_model_errs_by_chance():
    """Two hundred rows, probabilities all over: the error of outcomes drawn by the probabilities themselves."""
    rng = np.random.default_rng(3)
    confidence = rng.uniform(0.5, 1, 200)
    drawn = []
    for _ in range(300):
        right = rng.random(200) < confidence
        place = np.minimum((confidence * 15).astype(int), 14)
        gaps = [abs(right[place == b].mean() - confidence[place == b].mean()) * (place == b).sum()
                for b in set(place.tolist())]  # fmt: skip
        drawn.append(sum(gaps) / 200)
    assert unbiased_error(confidence) == pytest.approx(np.mean(drawn), rel=0.08)
    # More rows, less chance: ten times as many, about a third of the error.
    assert unbiased_error(np.tile(confidence, 10)) == pytest.approx(
        np.mean(drawn) / 10**0.5, rel=0.1
    )
