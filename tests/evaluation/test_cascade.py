"""Who answers in a cascade, what it comes to, and which thresholds a wish chooses: numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logit, softmax
from sklearn.metrics import log_loss

from limbeck.evaluation.cascade import CascadeRows, Point, temperature_of
from limbeck.runtimes.cascade import confidence_of


def of_two_classes(probabilities: list[float]) -> np.ndarray:
    """Logits (n, 2) under which the second class has these probabilities."""
    return np.stack([np.zeros(len(probabilities)), logit(np.array(probabilities))], axis=1)


# Rows:      sure and right, sure and wrong, unsure and wrong (twice), unsure and right
FAST = of_two_classes([0.99, 0.95, 0.6, 0.45, 0.55])
SLOW = of_two_classes([0.9, 0.1, 0.1, 0.9, 0.9])
LABELS = np.array([1, 0, 0, 1, 1])


def rows(logits=(FAST, SLOW), seconds=(1.0, 10.0)) -> CascadeRows:
    decided = [one.argmax(axis=1) for one in logits]

    def accuracy(answers):
        """Of each cascade by a loop over its answers."""
        found = []
        for one in answers.tolist():
            right = [decided[at // 5][at % 5] == LABELS[at % 5] for at in one]
            found.append(100 * sum(right) / len(right))
        return np.array(found)

    return CascadeRows(logits, decided, seconds, LABELS, several=False, score=accuracy)


ALL = np.arange(5)


def answering(cascade, temperatures, *thresholds) -> list[int]:
    (found,) = cascade.answering(ALL, temperatures, np.array([thresholds]))
    return found.tolist()


def point(cascade, temperatures, *thresholds):
    sent = cascade.answering(ALL, temperatures, np.array([thresholds]))
    (found,) = cascade.points_of(ALL, sent, temperatures, [thresholds])
    return found


def test_rows_below_the_threshold_are_answered_by_the_slow_model():
    assert answering(rows(), [1.0], 0.61) == [0, 0, 1, 1, 1]
    assert answering(rows(), [1.0], 0.0) == [0] * 5
    # A high temperature makes everything unsure.
    assert answering(rows(), [100.0], 0.61) == [1] * 5


def test_a_point_is_the_share_score_agreement_and_cost_of_the_joined_answers():
    found = point(rows(), [1.0], 0.61)
    assert (found.temperatures, found.thresholds) == ((1.0,), (0.61,))
    assert found.sent == (0.6,)
    assert found.score == 80.0  # the sure error stays
    assert found.agreement == 80.0
    assert found.seconds == pytest.approx(1 + 0.6 * 10)


def test_a_middle_model_answers_what_it_is_sure_of():
    middle = of_two_classes([0.5, 0.5, 0.05, 0.55, 0.9])
    three = rows((FAST, middle, SLOW), (1.0, 3.0, 10.0))
    assert answering(three, [1.0, 1.0], 0.61, 0.8) == [0, 0, 1, 2, 1]
    found = point(three, [1.0, 1.0], 0.61, 0.8)
    assert found.sent == (0.6, 0.2)
    assert found.seconds == pytest.approx(1 + 0.6 * 3 + 0.2 * 10)


def test_the_curve_is_the_same_whatever_is_scored_at_once(monkeypatch):
    three = rows((FAST, FAST[::-1], SLOW), (1.0, 3.0, 10.0))
    whole = three.curve(ALL)
    monkeypatch.setattr("limbeck.evaluation.cascade._BATCH_ANSWERS", 60)  # four cascades
    assert three.curve(ALL) == whole


def test_the_curve_goes_from_the_fast_model_alone_to_the_slow_one():
    curve = rows().curve(ALL)
    assert (curve[0].sent, curve[0].score) == ((0.0,), 40.0)
    assert (curve[-1].sent, curve[-1].score, curve[-1].agreement) == ((1.0,), 100.0, 100.0)
    # Two rows are equally unsure.
    assert sorted({one.sent[0] for one in curve}) == [0.0, 0.4, 0.6, 0.8, 1.0]


@pytest.mark.parametrize(
    ("wanted", "value", "sent"),
    [
        ("max_drop", 20.1, 0.6),
        ("max_drop", 0.1, 0.8),
        ("score", 79.9, 0.6),
        ("agreement", 59.9, 0.4),
        ("cost", 75.0, 0.6),
        ("cost", 10.0, 0.0),
    ],
)
def test_the_cheapest_thresholds_that_do_what_is_wanted_are_chosen(wanted, value, sent):
    cascade = rows()
    chosen = cascade.chosen(cascade.curve(ALL), wanted, value, 10**6)
    assert chosen is not None
    assert chosen.sent == (sent,)


def test_a_wish_is_met_by_half_a_standard_error():
    # Points of a made-up curve: score, agreement, seconds. Of 400 rows 10 % differ: 1.5 points are a standard error.
    def curve(*numbers):
        return [Point((), (place,), (0.0,), *one) for place, one in enumerate(numbers)]

    points = curve((79.8, 90.0, 1.0), (80.4, 90.0, 2.0), (80.5, 90.0, 3.0), (80.0, 100.0, 9.0))
    for wanted, value in (("max_drop", 0.3), ("score", 79.7)):
        # 79.7 is needed, and by half an error 80.45.
        assert rows().chosen(points, wanted, value, 400).thresholds == (2,)
        # Of a million rows an error is .03.
        assert rows().chosen(points, wanted, value, 1_000_000).thresholds == (0,)
    # No point has enough to spare.
    assert rows().chosen(points, "score", 80.2, 400).thresholds == (1,)
    points = curve((79.0, 95.0, 1.0), (79.0, 97.0, 2.0), (80.0, 100.0, 9.0))
    # sqrt(97 · 3 / 400) / 2 = .43
    assert rows().chosen(points, "agreement", 96.5, 400).thresholds == (1,)
    assert rows().chosen(points, "agreement", 96.6, 400).thresholds == (2,)
    # With two thresholds three times as much: 1.28.
    pairs = rows((FAST, FAST, SLOW), (1.0, 2.0, 10.0))
    assert pairs.chosen(points, "agreement", 95.7, 400).thresholds == (1,)
    assert pairs.chosen(points, "agreement", 95.8, 400).thresholds == (2,)


@pytest.mark.parametrize(("wanted", "value"), [("score", 100.1), ("cost", 9.0)])
def test_what_no_threshold_does_is_not_chosen(wanted, value):
    cascade = rows()
    assert cascade.chosen(cascade.curve(ALL), wanted, value, 10**6) is None


def test_each_half_is_answered_by_thresholds_of_the_other():
    # The first half alone needs everything sent on, the second nothing.
    first, second = np.array([0, 1]), np.array([2, 3, 4])
    swapped = rows((np.concatenate([SLOW[:2][::-1], SLOW[2:]]), SLOW))
    found = swapped.cross_fitted((first, second), "max_drop", 0.0)
    assert found is not None
    assert found.tolist() == [0, 0, 1, 1, 1]


def test_the_temperature_has_the_least_loss_by_scikit_learn():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=400)
    logits = 4 * np.eye(3)[truth] + 6 * rng.normal(size=(400, 3))

    found = temperature_of(logits, truth)
    tried = np.linspace(0.5 * found, 2 * found, 400)
    losses = [log_loss(truth, softmax(logits / one, axis=1)) for one in tried]
    assert tried[int(np.argmin(losses))] == pytest.approx(found, rel=0.01)


def test_how_sure_a_model_is_of_several_labels_is_the_least_sure_one():
    logits = logit(np.array([[0.9, 0.2, 0.6], [0.99, 0.99, 0.01]]))
    assert confidence_of(logits, 1.0, several=True).tolist() == pytest.approx([0.6, 0.99])
    assert confidence_of(np.log([[0.2, 0.5, 0.3]]), 1.0, several=False) == pytest.approx([0.5])
