import warnings

import numpy as np
import pytest

from limbeck.support.errors import LimbeckError
from limbeck.tasks import LOWER_IS_BETTER, SENTENCE, TASKS, get_task, project
from limbeck.tasks.metrics import METRICS, mean_of

# Transcribed from the Hub's dataset cards: columns and class names in id order.
HUB = {
    "cola": (["sentence"], ["unacceptable", "acceptable"]),
    "sst2": (["sentence"], ["negative", "positive"]),
    "mrpc": (["sentence1", "sentence2"], ["not_equivalent", "equivalent"]),
    "stsb": (["sentence1", "sentence2"], []),
    "qqp": (["question1", "question2"], ["not_duplicate", "duplicate"]),
    "mnli": (["premise", "hypothesis"], ["entailment", "neutral", "contradiction"]),
    "qnli": (["question", "sentence"], ["entailment", "not_entailment"]),
    "rte": (["sentence1", "sentence2"], ["entailment", "not_entailment"]),
    "wnli": (["sentence1", "sentence2"], ["not_entailment", "entailment"]),
    "scitail": (["premise", "hypothesis"], ["entails", "neutral"]),
    "paws": (["sentence1", "sentence2"], ["different_meaning", "paraphrase"]),
    "imdb": (["text"], ["neg", "pos"]),
}


def one_hot(classes, count):
    rows = np.zeros((len(classes), count))
    for row, chosen in enumerate(classes):
        rows[row, chosen] = 1
    return rows


def test_tasks_follow_the_hub():
    assert {
        name: (list(task.text_columns), list(task.labels))
        for name, task in TASKS.items()
        if task.kind is SENTENCE
    } == HUB


def test_every_task_names_known_metrics_and_links():
    for task in TASKS.values():
        assert task.kind is not SENTENCE or set(task.metrics) <= set(METRICS)
        assert task.primary not in LOWER_IS_BETTER
        assert mean_of(task.primary, dict.fromkeys(task.metrics, 50.0)) == 50.0
        assert task.out_of_domain is None or task.out_of_domain in TASKS
        assert task.regression == (task.name == "stsb")
        assert task.outputs == max(1, len(task.labels))


def test_unknown_task_names_the_nearest():
    with pytest.raises(LimbeckError, match=r"unknown task 'mrcp'(.|\n)*did you mean 'mrpc'"):
        get_task("mrcp")


def test_scores_by_hand():
    # 2 hits of class 1, 1 false alarm, 1 miss, 1 right 0: precision = recall = 2/3. Of class 0
    # both are 1/2, so that weighted F1 is (3 · 2/3 + 2 · 1/2) / 5.
    scores = TASKS["mrpc"].scores(one_hot([1, 1, 1, 0, 0], 2), np.array([1, 1, 0, 1, 0]))
    assert scores == pytest.approx(
        {
            "accuracy": 60.0,
            "f1": 200 / 3,
            "weighted_f1": 60.0,
            "primary": (60 + 200 / 3) / 2,
        }
    )
    # (2·1 − 1·1) / sqrt(3·3·2·2) = 1/6
    cola = TASKS["cola"].scores(one_hot([1, 1, 1, 0, 0], 2), [1, 1, 0, 1, 0])
    assert cola == pytest.approx({"matthews": 100 / 6, "primary": 100 / 6})


def test_correlations_by_hand():
    # Ranks of (1, 2, 4) and (1, 3, 2): Σd² = 2, ρ = 1 − 6·2/24 = 0.5.
    # Deviations (−4/3, −1/3, 5/3) and (−1, 1, 0): 1 / sqrt(14/3 · 2).
    scores = TASKS["stsb"].scores(np.array([[1.0], [2.0], [4.0]]), np.array([1.0, 3.0, 2.0]))
    assert scores["spearman"] == pytest.approx(50.0)
    assert scores["pearson"] == pytest.approx(100 / np.sqrt(28 / 3))
    assert scores["primary"] == pytest.approx((scores["pearson"] + scores["spearman"]) / 2)
    flat = TASKS["stsb"].scores(np.array([1.0, 2.0, 4.0]), [1.0, 3.0, 2.0])
    assert flat == scores


def test_perfect_and_opposite_scores():
    labels = np.array([0, 1, 1, 0, 2])
    assert TASKS["mnli"].scores(one_hot(labels, 3), labels)["primary"] == 100.0
    values = np.array([0.0, 1.5, 5.0])
    assert TASKS["stsb"].scores(-values, values)["primary"] == pytest.approx(-100.0)


@pytest.mark.parametrize("answer", [0, 1])
@pytest.mark.parametrize("name", ["cola", "mrpc"])
def test_constant_classes_score_quietly(name, answer):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = TASKS[name].scores(one_hot([answer] * 4, 2), [0, 1, 1, 0])
    expected = {"cola": {"matthews": 0.0}, "mrpc": {"f1": 200 / 3 if answer else 0.0}}[name]
    assert expected.items() <= {k: pytest.approx(v) for k, v in scores.items()}.items()


@pytest.mark.parametrize("rest", [0.0, 1e-15])
def test_constant_numbers_score_zero_quietly(rest):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = TASKS["stsb"].scores(np.array([1.0, 1.0, 1.0 + rest]), [0.0, 2.0, 2.0])
        alone = TASKS["stsb"].scores(np.array([[1.0]]), [3.0])
    assert all(np.isfinite(value) for value in scores.values())
    if not rest:
        assert scores["pearson"] == scores["spearman"] == 0.0
    assert alone["primary"] == 0.0


@pytest.mark.parametrize(
    ("predictions", "labels", "message"),
    [
        (np.zeros((3, 3)), [0, 1, 1], "shape"),
        (np.zeros((2, 2)), [0, 1, 1], "shape"),
        (np.zeros((0, 2)), [], "no rows"),
        (np.full((2, 2), np.nan), [0, 1], "not finite"),
    ],
)
def test_scores_refuse_what_does_not_fit(predictions, labels, message):
    with pytest.raises(LimbeckError, match=message):
        TASKS["mrpc"].scores(predictions, labels)


def test_unknown_metric_is_named():
    with pytest.raises(LimbeckError, match="unknown metric 'f2'"):
        mean_of("accuracy+f2", {"accuracy": 1.0, "f1": 2.0})


def test_mnli_answers_fold_into_scitail():
    # entailment, neutral, contradiction: an answer just ahead of two others still decides.
    logits = np.array([[2.0, 1.9, 1.9], [0.0, 1.0, 0.5], [0.0, 0.1, 3.0]])
    projected = project(logits, TASKS["mnli"], TASKS["scitail"])
    assert projected.argmax(1).tolist() == [0, 1, 1]
    assert TASKS["scitail"].scores(projected, [0, 1, 0])["accuracy"] == pytest.approx(200 / 3)


@pytest.mark.parametrize(("source", "target"), [("qqp", "paws"), ("sst2", "imdb")])
def test_binary_pairs_keep_their_order(source, target):
    logits = np.array([[0.1, 0.2], [5.0, -1.0]])
    assert project(logits, TASKS[source], TASKS[target]).argmax(1).tolist() == [1, 0]


def test_same_names_in_another_order_are_translated():
    # RTE's class 0 is entailment, WNLI's is not_entailment.
    logits = np.array([[9.0, 0.0], [0.0, 9.0]])
    assert project(logits, TASKS["rte"], TASKS["wnli"]).argmax(1).tolist() == [1, 0]


def test_projection_refuses_strangers_and_wrong_widths():
    with pytest.raises(LimbeckError, match="'sst2' cannot be scored on 'rte'"):
        project(np.zeros((1, 2)), TASKS["sst2"], TASKS["rte"])
    with pytest.raises(LimbeckError, match="3 classes of 'mnli'"):
        project(np.zeros((1, 2)), TASKS["mnli"], TASKS["scitail"])


def test_which_splits_are_scored():
    everything = ("train", "dev", "dev_mismatched", "test")
    assert TASKS["mnli"].evaluation_splits(everything) == ("dev", "dev_mismatched")
    assert TASKS["mrpc"].evaluation_splits(everything) == ("dev",)
    assert TASKS["imdb"].evaluation_splits(everything) == ("test",)
    assert TASKS["imdb"].evaluation_splits(("train", "dev")) == ("dev",)
