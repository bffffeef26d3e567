"""The task type of several labels a row: its head, its losses, its scores, and what a constant would score."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.metrics import f1_score
from transformers import BertConfig, BertForSequenceClassification, ViTConfig

import several_labels as several
from limbeck.outputs.stored_teacher import as_logits
from limbeck.preflight import TeacherOutputs
from limbeck.preflight.score_checks import check_class_order, correlations
from limbeck.support.errors import LimbeckError
from limbeck.tasks import MULTI_LABEL, SENTENCE, SoftRule, Task, kind_of_config, task_type_of
from limbeck.tasks.classes import METRICS_OF_SEVERAL
from limbeck.tasks.rules import HardRule

TASK = Task(
    "t", "t", ("sentence",), ("a", "b", "c"), METRICS_OF_SEVERAL, "micro_f1", kind=MULTI_LABEL
)
LABELS = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 0], [1, 0, 0]], dtype=float)


def loaded(labels: np.ndarray) -> Dataset:
    return Dataset.from_dict({"label": labels.tolist(), "index": [*range(len(labels))]})


def test_a_head_is_known_by_its_problem():
    config = BertConfig(
        problem_type=several.SEVERAL, architectures=["BertForSequenceClassification"]
    )
    assert kind_of_config(config) is MULTI_LABEL
    config.problem_type = "single_label_classification"
    assert kind_of_config(config) is SENTENCE
    config.problem_type = None
    assert kind_of_config(config) is SENTENCE
    tiny = BertConfig(vocab_size=5, hidden_size=4, num_attention_heads=1, intermediate_size=4,
                      num_hidden_layers=1, problem_type=several.SEVERAL)  # fmt: skip
    assert task_type_of(BertForSequenceClassification(tiny)) is MULTI_LABEL


def test_images_of_several_labels_are_refused():
    from transformers import ViTForImageClassification

    config = ViTConfig(hidden_size=4, num_attention_heads=1, intermediate_size=4, num_hidden_layers=1,
                       image_size=8, patch_size=4, problem_type=several.SEVERAL)  # fmt: skip
    with pytest.raises(LimbeckError, match="no task type"):
        task_type_of(ViTForImageClassification(config))


def test_scores_by_hand():
    logits = np.array([[2.0, -1, 1], [-1, -1, -1], [2, -2, 1], [-3, -1, -1]])
    found = MULTI_LABEL.results_of_rows(TASK, logits, loaded(LABELS))
    # Given: ac, –, ac, –. Hits 3 of 4 given and 5 right ones: 2·3/(4 + 5).
    assert found.scores["micro_f1"] == pytest.approx(100 * 6 / 9)
    # a: 2 of 2 given, 3 right, 4/5; b: 0; c: 1 of 2 given, 1 right, 2/3.
    assert found.scores["macro_f1"] == pytest.approx(100 * (0.8 + 0 + 2 / 3) / 3)
    assert found.scores["subset_accuracy"] == 50.0
    assert found.predictions["prediction"] == [[1, 0, 1], [0, 0, 0], [1, 0, 1], [0, 0, 0]]
    assert found.predictions["label"] == LABELS.astype(int).tolist()
    assert found.predictions["probabilities"][0][0] == pytest.approx(
        1 / (1 + math.exp(-2)), abs=1e-9
    )
    assert found.thresholds == (0.5, 0.5, 0.5)


def test_a_class_without_rows_is_no_part_of_the_means():
    labels = LABELS[[0, 3]]  # no b
    logits = np.where(labels == 1, 3.0, -3.0)
    found = MULTI_LABEL.results_of_rows(TASK, logits, loaded(labels))
    assert set(found.scores.values()) == {100.0}


def test_tuned_thresholds_are_used():
    logits = np.array([[-1.0, -3, -1], [-3, -3, -3], [-1, -1, -3], [-1, -3, -3]])
    tuned = replace(TASK, thresholds="one")
    found = MULTI_LABEL.results_of_rows(tuned, logits, loaded(LABELS))
    assert found.scores["primary"] == 100
    expected = (1 / (1 + math.e) + 1 / (1 + math.e**3)) / 2
    assert found.thresholds == pytest.approx([expected] * 3)


def test_the_best_constant():
    score, names = MULTI_LABEL.baseline(TASK, LABELS)
    sets = itertools.product((0, 1), repeat=3)
    best = max(
        f1_score(LABELS, np.tile(one, (4, 1)), average="micro", zero_division=0) for one in sets
    )
    assert score == pytest.approx(100 * best)
    assert names == "a"


def test_sums_over_rows_are_the_scores():
    given = (np.random.default_rng(0).random(LABELS.shape) > 0.4).astype(int)
    for metric in ("micro_f1", "subset_accuracy"):
        kept = {"prediction": given.tolist(), "label": LABELS.tolist()}
        sampled = MULTI_LABEL.sampled_score(TASK, metric, kept)
        logits = np.where(given == 1, 1.0, -1.0)
        scores = MULTI_LABEL.results_of_rows(TASK, logits, loaded(LABELS)).scores
        assert sampled(np.arange(len(LABELS))[None])[0] == pytest.approx(scores[metric])
    assert MULTI_LABEL.sampled_score(TASK, "average_precision", kept) is None


def test_balanced_weights_of_the_labelled_rows():
    labels = np.vstack([LABELS, np.full((2, 3), np.nan)])
    # a: 1 without, 3 with; b and c: 3 without, 1 with.
    assert MULTI_LABEL.balanced_weights(labels, 3).tolist() == pytest.approx([1 / 3, 3, 3])


def test_losses_are_torchs():
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    labels, weights = torch.tensor(LABELS), torch.tensor([1.0, 2.0, 3.0])
    expected = torch.nn.BCEWithLogitsLoss(pos_weight=weights)(logits, labels.float())
    found = MULTI_LABEL.hard_label(logits, {"labels": labels.long()}, HardRule(weights))
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)
    soft = MULTI_LABEL.soft_label(logits, logits, {}, SoftRule("soft_kl", 2.0))
    assert soft.item() == pytest.approx(0.0, abs=1e-7)


def test_probabilities_by_themselves_as_logits():
    stored = np.array([[0.9, 0.5, 0.2], [1.0, 0.0, 0.75]])
    found = as_logits("probabilities", stored, several=True)
    assert found[0].tolist() == pytest.approx([math.log(9), 0.0, math.log(0.25)], abs=1e-6)
    assert (
        np.isfinite(found).all() and found[1, 0] > 20 and found[1, 2] == pytest.approx(math.log(3))
    )


def test_the_order_of_classes_by_correlation():
    generator = np.random.default_rng(0)
    labels = (generator.random((200, 3)) < [0.5, 0.3, 0.2]).astype(float)
    logits = labels * 2 + generator.normal(size=labels.shape)
    assert np.allclose(correlations(logits, labels), np.corrcoef(logits.T, labels.T)[:3, 3:])
    turned = logits[:, [1, 0, 2]]
    assert not check_class_order(TASK, TeacherOutputs(logits, labels, "here"))
    (problem,) = check_class_order(TASK, TeacherOutputs(turned, labels, "here"))
    assert "its class 0 means 'b', its class 1 means 'a'" in problem.message
    # Too few rows to tell, and a constant class.
    assert not check_class_order(TASK, TeacherOutputs(turned[:5], labels[:5], "here"))


def test_labels_that_are_neither_0_nor_1():
    rows = Dataset.from_dict({"label": [[0.0, 1.0, math.nan], [0.5, 1, 1], [1, 0, 2]]})
    assert MULTI_LABEL.check_rows(TASK, rows) == ["labels that are neither 0 nor 1: [0.5, 2.0]"]
