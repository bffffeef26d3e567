"""A student and its teachers in one process: whose weights are whose, and what their classes are called."""

from __future__ import annotations

import copy
import logging

import own_rows as own
import pytest
import torch

import tiny_runs as tiny
from limbeck.support.errors import LimbeckError
from limbeck.teachers.teacher import Teacher

OTHER_ORDER = {"id2label": {0: "Positive", 1: "NEGATIVE"}}


def trainer(student, teacher, folder, **changes):
    changes = {"train_dataset": tiny.rows(8), "data_collator": own.OwnCollator()} | changes
    return tiny.trainer_of(student, own.arguments(folder), teacher=teacher, **changes)


# ---- classes ----


@pytest.mark.parametrize("method", ["kd", "rail-kd-l"])
def test_a_teacher_with_the_classes_in_another_order_is_refused(tmp_path, method):
    teacher = tiny.bert(3, seed=1, **OTHER_ORDER)
    with pytest.raises(
        LimbeckError, match=r"another order.*Positive, NEGATIVE.*negative, positive"
    ):
        trainer(tiny.bert(2), teacher, tmp_path, method=method)


@pytest.mark.parametrize("method", ["skd-uniform", "wkd-uniform", "takd"])
def test_one_of_several_teachers_in_another_order_is_refused_by_name(tmp_path, method):
    team = {"first": tiny.bert(4, seed=1), "second": tiny.bert(3, seed=2, **OTHER_ORDER)}
    with pytest.raises(LimbeckError, match=r"teacher second.*another order"):
        trainer(tiny.bert(2), team, tmp_path, method=method)


def test_classes_of_other_names_or_none_are_the_users_to_know(tmp_path):
    for names in ({0: "no", 1: "yes"}, {0: "LABEL_0", 1: "LABEL_1"}):
        trainer(tiny.bert(2), tiny.bert(3, id2label=names), tmp_path)


# ---- weights ----


def test_a_student_that_is_its_own_teacher_is_refused(tmp_path):
    model = tiny.bert(2)
    with pytest.raises(LimbeckError, match="shares all 41 of its weights with the teacher"):
        trainer(model, model, tmp_path)


def test_a_student_that_shares_layers_with_its_teacher_is_refused_with_their_names(tmp_path):
    student, teacher = tiny.bert(2), tiny.bert(3, seed=1)
    student.bert.encoder.layer[0] = teacher.bert.encoder.layer[0]
    with pytest.raises(LimbeckError, match=r"shares 16 of its 41 weights.*encoder\.layer\.0"):
        trainer(student, teacher, tmp_path, method="rail-kd-l")


def test_a_copy_of_the_teacher_is_no_part_of_it(tmp_path):
    teacher = tiny.bert(2)
    student = copy.deepcopy(teacher)
    taught = trainer(student, teacher, tmp_path)
    before = copy.deepcopy(teacher.state_dict())
    taught.train()
    for name, weight in teacher.state_dict().items():
        assert torch.equal(weight, before[name])
    assert not torch.equal(student.classifier.weight, teacher.classifier.weight)


@pytest.mark.parametrize("method", ["kd", "rail-kd-l", "tinybert"])
def test_a_student_without_a_weight_to_train_is_refused(tmp_path, method):
    teacher = tiny.bert(3, seed=1)
    Teacher(teacher)  # freezes it
    student = copy.deepcopy(teacher)
    frozen = trainer(student, tiny.bert(4), tmp_path, method=method)
    with pytest.raises(LimbeckError, match=r"(?s)no weight of the student.*requires_grad_\(True\)"):
        frozen.train()


def test_a_frozen_student_can_be_scored(tmp_path):
    student = tiny.bert(2).requires_grad_(False)
    assert "eval_loss" in trainer(student, tiny.bert(3), tmp_path).evaluate(tiny.rows(4))


def test_a_student_whose_head_alone_is_trained_is_none_of_these(tmp_path):
    student = tiny.bert(2)
    student.bert.requires_grad_(False)
    before = copy.deepcopy(student.state_dict())
    trainer(student, tiny.bert(3, seed=1), tmp_path).train()
    moved = {
        name
        for name, weight in student.state_dict().items()
        if not torch.equal(weight, before[name])
    }
    assert moved == {"classifier.weight", "classifier.bias"}


def test_a_student_held_in_half_precision_is_warned_of(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="limbeck"):
        trainer(tiny.bert(2).to(torch.bfloat16), tiny.bert(3), tmp_path).train()
    assert "weights of the student are bfloat16" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="limbeck"):
        trainer(tiny.bert(2), tiny.bert(3).to(torch.bfloat16), tmp_path).train()
    assert "bfloat16" not in caplog.text


def test_an_optimizer_over_another_models_weights_is_refused(tmp_path):
    optimizer = torch.optim.SGD(tiny.bert(2).parameters(), lr=0.1)
    with pytest.raises(LimbeckError, match=r"optimizers:.*no weights of the student"):
        trainer(tiny.bert(2), tiny.bert(3), tmp_path, optimizers=(optimizer, None))
