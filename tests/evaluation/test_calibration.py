"""Calibration against scikit-learn, a loop over bins, and numbers worked out by hand."""

import math

import numpy as np
import pytest
from sklearn.metrics import log_loss

from limbeck.evaluation.calibration import calibration_of, unbiased_error


def random_answers(classes: int, count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(classes)
    return random.normal(0, 2, (count, classes)), random.integers(0, classes, count)


def softmax(logits: np.ndarray) -> np.ndarray:
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


def test_four_examples_by_hand() -> None:
    # Answered with probabilities .9, .9, .6 and .55; the second and the third are wrong.
    first = np.array([0.9, 0.9, 0.4, 0.55])
    logits = np.log(np.stack([first, 1 - first], axis=1))
    found = calibration_of(logits, np.array([0, 1, 0, 0]), bins=2)
    # One bin holds them all: half are right, the mean confidence is 2.95 / 4.
    assert found.confidence == pytest.approx(0.7375)
    assert found.accuracy == 0.5
    assert found.error == pytest.approx(0.2375)
    assert found.brier == pytest.approx(2 * (0.01 + 0.81 + 0.36 + 0.2025) / 4)
    wanted = -(math.log(0.9) + math.log(0.1) + math.log(0.4) + math.log(0.55)) / 4
    assert found.likelihood == pytest.approx(wanted)
    assert [part.rows for part in found.bins] == [0, 4]
    assert found.bins[0].accuracy is None


def test_bins_are_told_apart() -> None:
    first = np.array([0.9, 0.95, 0.62, 0.68])
    logits = np.log(np.stack([first, 1 - first], axis=1))
    found = calibration_of(logits, np.array([0, 0, 0, 1]), bins=5)
    # (.8, 1]: both right at .925; (.6, .8]: one of two at .65.
    assert [part.rows for part in found.bins] == [0, 0, 0, 2, 2]
    assert found.error == pytest.approx(0.5 * 0.075 + 0.5 * 0.15)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_likelihood_is_scikit_learns_log_loss(classes: int) -> None:
    logits, labels = random_answers(classes)
    wanted = log_loss(labels, softmax(logits), labels=list(range(classes)))
    assert calibration_of(logits, labels).likelihood == pytest.approx(wanted)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_other_numbers_are_those_of_a_loop(classes: int) -> None:
    logits, labels = random_answers(classes)
    error, brier = 0.0, 0.0
    bins: dict[int, list[tuple[float, bool]]] = {}
    for row, label in zip(softmax(logits), labels, strict=True):
        bins.setdefault(math.ceil(max(row) * 15), []).append((max(row), row.argmax() == label))
        brier += sum((p - (c == label)) ** 2 for c, p in enumerate(row)) / len(labels)
    for members in bins.values():
        gap = sum(right for _, right in members) - sum(sure for sure, _ in members)
        error += abs(gap) / len(labels)
    found = calibration_of(logits, labels)
    assert found.error == pytest.approx(error)
    assert found.brier == pytest.approx(brier)
    assert {n + 1: part.rows for n, part in enumerate(found.bins) if part.rows} == {
        n: len(members) for n, members in bins.items()
    }


def test_one_who_is_sure_and_right_is_perfect() -> None:
    labels = np.array([0, 1, 2])
    found = calibration_of(1000 * np.eye(3), labels)
    assert (found.error, found.brier, found.likelihood) == (0, 0, 0)
    assert found.bins[-1].rows == 3


def test_log_probabilities_are_as_good_as_logits() -> None:
    logits, labels = random_answers(3)
    assert calibration_of(np.log(softmax(logits)), labels).error == pytest.approx(
        calibration_of(logits, labels).error
    )


@pytest.mark.parametrize(
    ("shape", "labels"), [((0, 2), []), ((2,), [0, 1]), ((2, 2), [0]), ((2, 2), [0, 2])]
)
def test_what_does_not_fit_is_refused(shape: tuple, labels: list) -> None:
    with pytest.raises(ValueError, match=r"labels"):
        calibration_of(np.zeros(shape), np.array(labels))


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
