"""The share of a teacher's score that is kept, and its interval over rows."""

from __future__ import annotations

import numpy as np
import pytest
from seqeval.metrics import f1_score as entity_f1
from sklearn import metrics

from limbeck.evaluation.row_tests import kept_share
from limbeck.tasks import TASKS
from limbeck.tasks.spans import token_f1

ROWS = 400


def predicted(seed: int, right: np.ndarray, share: float, classes: int = 2) -> dict[str, list]:
    rng = np.random.default_rng(seed)
    wrong = rng.random(len(right)) > share
    given = np.where(wrong, (right + 1) % classes, right)
    return {"prediction": given.tolist(), "label": right.tolist()}


def primary(task, rows) -> float:
    given = np.eye(len(task.labels))[rows["prediction"]]
    return task.scores(given, np.array(rows["label"]))["primary"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sst2", "cola"])
def test_an_interval_is_that_of_an_explicit_loop(name):
    """Rows sampled one by one with another generator, and scored by the task's own metrics."""
    task = TASKS[name]
    right = np.random.default_rng(1).integers(0, len(task.labels), ROWS)
    student = predicted(2, right, 0.8, len(task.labels))
    teacher = predicted(3, right, 0.9, len(task.labels))
    scores = primary(task, student), primary(task, teacher)
    found = kept_share(task, student, teacher, scores)
    assert found.share == pytest.approx(scores[0] / scores[1])
    rng, shares = np.random.default_rng(9), []
    for _ in range(300):
        rows = rng.integers(0, ROWS, ROWS)
        sides = [
            {key: [side[key][row] for row in rows] for key in side} for side in (student, teacher)
        ]
        shares.append(primary(task, sides[0]) / primary(task, sides[1]))
    low, high = np.percentile(shares, [2.5, 97.5])
    # Of 300 and 1000 samples the percentiles themselves have an error of a tenth of the width.
    width = high - low
    assert found.low == pytest.approx(low, abs=0.25 * width)
    assert found.high == pytest.approx(high, abs=0.25 * width)
    assert found.paired and found.rows == ROWS


def test_a_regression_has_one_too_and_pairs_narrow_it():
    task = TASKS["stsb"]
    rng = np.random.default_rng(0)
    right = rng.normal(size=ROWS)
    noise = rng.normal(size=ROWS)
    student = {"prediction": (right + noise).tolist(), "label": right.tolist()}
    teacher = {"prediction": (right + 0.9 * noise).tolist(), "label": right.tolist()}
    own, theirs = (
        task.scores(np.array(side["prediction"]), right)["primary"] for side in (student, teacher)
    )
    both = kept_share(task, student, teacher, (own, theirs))
    alone = kept_share(task, student, None, (own, theirs))
    assert both.low < both.share < both.high
    assert alone.low < alone.share < alone.high and not alone.paired
    assert both.high - both.low < 0.5 * (alone.high - alone.low)


def test_nothing_is_said_where_nothing_can_be():
    right = np.array([0, 1] * 5)
    rows = predicted(0, right, 0.9)
    assert kept_share(TASKS["cola"], rows, rows, (10.0, 0.0)) is None
    one = {"prediction": [1], "label": [1]}
    assert kept_share(TASKS["sst2"], one, one, (100.0, 100.0)) is None
    # In some samples of ten rows a teacher like this has no correlation at all.
    assert kept_share(TASKS["cola"], rows, predicted(1, right, 0.6), (50.0, 50.0)) is None


# ---- what each task type sums up ----


def ratio(task, metric, given, right) -> float | None:
    score = task.kind.sampled_score(task, metric, {"prediction": given, "label": right})
    return None if score is None else float(score(np.arange(len(right))[None])[0])


def test_sums_by_row_make_sklearns_scores():
    task, rng = TASKS["mrpc"], np.random.default_rng(0)
    given, right = rng.integers(0, 2, (2, 50))
    assert ratio(task, "f1", given, right) == pytest.approx(100 * metrics.f1_score(right, given))
    assert ratio(task, "accuracy", given, right) == pytest.approx(
        100 * metrics.accuracy_score(right, given)
    )


def test_words_in_place_of_classes_count_alike():
    task = TASKS["mrpc"]
    words = ["equivalent", "not_equivalent", "equivalent", "nonsense"]
    right = ["equivalent", "equivalent", "not_equivalent", "equivalent"]
    ids = {"not_equivalent": 0, "equivalent": 1, "nonsense": -1}
    for metric in ("accuracy", "f1"):
        numbers = [ids[word] for word in words], [ids[word] for word in right]
        assert ratio(task, metric, words, right) == ratio(task, metric, *numbers)


def test_entities_are_summed_as_seqeval_does():
    task, rng = TASKS["ner"], np.random.default_rng(4)
    right = [rng.integers(0, len(task.labels), 12).tolist() for _ in range(40)]
    given = [[tag if rng.random() < 0.7 else 0 for tag in tags] for tags in right]
    names = [[[task.labels[tag] for tag in row] for row in side] for side in (right, given)]
    assert ratio(task, "f1", given, right) == pytest.approx(100 * entity_f1(*names))


def test_spans_and_masked_tokens():
    squad = TASKS["squad"]
    given, right = ["the cat", "rome"], [["a cat"], ["paris"]]
    assert ratio(squad, "f1", given, right) == pytest.approx(
        50 * (token_f1(given[0], right[0]) + token_f1(given[1], right[1]))
    )
    mlm = TASKS["mlm"]
    assert ratio(mlm, "accuracy", [3, 1], [4, 4]) == pytest.approx(50.0)
    assert ratio(mlm, "perplexity", [3], [4]) is None
    assert ratio(TASKS["cifar100"], "top5", [0], [0]) is None


def test_few_rows_that_both_answer_alike_leave_room_for_chance():
    """Where the two never differ, the score test's limit is g = z² / (n + z²)."""
    rows = predicted(0, np.array([0, 1] * 5), 1.0)
    found = kept_share(TASKS["sst2"], rows, rows, (100.0, 100.0))
    gap = 1.959964**2 / (10 + 1.959964**2)  # 27.75 points
    assert (found.low, found.high) == (pytest.approx(1 - gap), pytest.approx(1 + gap))
    assert found.interval == "95 % interval 72.2 to 127.8, score interval over 10 dev rows"
