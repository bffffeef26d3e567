"""Heads, labels, precision and configurations of students."""

from __future__ import annotations

import pytest
import torch
from student_models import FAMILIES, SIZES, TASK, Labels, batch_for, logits, random_model
from transformers import (
    BertConfig,
)

from limbeck.students import build_student
from limbeck.support.errors import LimbeckError


def test_head_is_copied_only_when_labels_agree():
    config = BertConfig(**SIZES, id2label={0: "contradiction", 1: "entailment", 2: "neutral"})
    teacher = random_model(config)
    same = Labels(("Contradiction", "entailment", "neutral"))
    moved = Labels(("entailment", "neutral", "contradiction"))
    copied = build_student("teacher", teacher=teacher, layers=1, task=same)
    fresh = build_student("teacher", teacher=teacher, layers=1, task=moved, seed=3)
    again = build_student("teacher", teacher=teacher, layers=1, task=moved, seed=3)
    other = build_student("teacher", teacher=teacher, layers=1, task=moved, seed=4)
    weight = teacher.classifier.weight
    assert torch.equal(copied.classifier.weight, weight)
    assert not torch.equal(fresh.classifier.weight, weight)
    assert torch.equal(fresh.classifier.weight, again.classifier.weight)
    assert not torch.equal(fresh.classifier.weight, other.classifier.weight)
    assert torch.equal(fresh.bert.pooler.dense.weight, teacher.bert.pooler.dense.weight)
    assert fresh.config.id2label == {0: "entailment", 1: "neutral", 2: "contradiction"}
    assert fresh.config.label2id["contradiction"] == 2
    assert fresh.config.problem_type == "single_label_classification"


def test_a_kind_goes_by_its_name():
    config = BertConfig(**SIZES)
    tokens = build_student(config, kind="tokens", task=Labels(("a", "b")))
    assert type(tokens).__name__ == "BertForTokenClassification"
    with pytest.raises(LimbeckError, match=r"unknown kind 'pair-scores'") as error:
        build_student(config, kind="pair-scores")
    assert "did you mean 'pair-score'? choices: " in error.value.problems[0].fix


def test_labels_that_a_saved_configuration_would_lose_are_refused():
    """BART's class default is three labels; transformers leaves LABEL_0, LABEL_1 unsaved."""
    teacher = random_model(FAMILIES["bart"])
    task = Labels(("LABEL_0", "LABEL_1"))
    with pytest.raises(LimbeckError, match="name the classes"):
        build_student("teacher", teacher=teacher, layers=2, task=task)


def test_regression_student_has_one_output():
    teacher = random_model(FAMILIES["bert"])
    student = build_student("teacher", teacher=teacher, layers=2, task=Labels((), True))
    assert student.config.num_labels == 1 and student.config.problem_type == "regression"
    labels = torch.tensor([0.5, 3.0])
    output = student(**batch_for(student), labels=labels)
    torch.testing.assert_close(
        output.loss, ((output.logits.squeeze(-1) - labels) ** 2).mean(), rtol=1e-6, atol=1e-6
    )


def test_building_leaves_teacher_and_random_state_alone():
    teacher = random_model(FAMILIES["bert"])
    before = {name: weight.clone() for name, weight in teacher.state_dict().items()}
    state = torch.get_rng_state()
    student = build_student("teacher", teacher=teacher, layers=2, task=Labels(("a", "b", "c")))
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        for weight in student.parameters():
            weight.zero_()
    assert all(torch.equal(before[name], weight) for name, weight in teacher.state_dict().items())
    assert teacher.config.num_hidden_layers == 4 and teacher.config.num_labels == 2


def test_half_precision_teacher_gives_a_float32_student():
    teacher = random_model(FAMILIES["bert"]).to(torch.bfloat16)
    student = build_student("teacher", teacher=teacher, layers=2, task=TASK)
    assert {weight.dtype for weight in student.parameters()} == {torch.float32}
    assert torch.equal(student.classifier.weight, teacher.classifier.weight.float())


def test_fresh_students():
    teacher = random_model(FAMILIES["bert"])
    narrow = build_student("fresh", teacher=teacher, layers=2, task=TASK, config={"hidden_size": 8})
    assert narrow.config.hidden_size == 8 and len(narrow.bert.encoder.layer) == 2
    deep = build_student("fresh", teacher=teacher, task=TASK, config={"num_hidden_layers": 6})
    assert len(deep.bert.encoder.layer) == 6
    modern = random_model(FAMILIES["modernbert"])
    deep = build_student("fresh", teacher=modern, task=TASK, config={"num_hidden_layers": 7})
    assert len(deep.config.layer_types) == 7
    sizes = {"model_type": "distilbert", "dim": 8, "n_heads": 2, "hidden_dim": 8, "n_layers": 1}
    other = build_student("fresh", teacher=teacher, task=TASK, config=sizes)
    assert other.config.model_type == "distilbert" and other.config.vocab_size == 40
    given = build_student(FAMILIES["electra"], layers=1, task=TASK, seed=5)
    again = build_student(FAMILIES["electra"], layers=1, task=TASK, seed=5)
    assert torch.equal(logits(given), logits(again))


@pytest.mark.parametrize(
    ("init", "config", "words"),
    [
        ("teacher", {"hiden_size": 8}, "did you mean 'hidden_size'"),
        ("teacher", {"hidden_size": 8}, "its shape differs"),
        ("teacher", {"num_hidden_layers": 2}, "student.layers instead"),
        ("teacher", {"model_type": "roberta"}, "set init: fresh"),
        ("fresh", {"hidden_size": 9}, "no model can be built"),
        ("fresh", {"hidden_size": "wide"}, "rejects it"),
        ("fresh", {"model_type": "brt"}, "brt"),
    ],
)
def test_bad_settings(init, config, words):
    teacher = random_model(FAMILIES["bert"])
    with pytest.raises(LimbeckError, match=words):
        build_student(init, teacher=teacher, task=TASK, config=config)


def test_settings_that_change_no_shape_are_allowed():
    teacher = random_model(FAMILIES["bert"])
    student = build_student(
        "teacher", teacher=teacher, layers=2, task=TASK, config={"hidden_dropout_prob": 0.3}
    )
    assert student.config.hidden_dropout_prob == 0.3
    assert teacher.config.hidden_dropout_prob == 0.1


def test_no_teacher():
    with pytest.raises(LimbeckError, match="there is no teacher"):
        build_student("teacher", layers=2, task=TASK)
