"""A student out of a teacher model alone: the same head, class and labels, and nothing shared with it."""

from __future__ import annotations

import re

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForTokenClassification,
    BertModel,
)

import limbeck
import tiny_runs as tiny
from limbeck.support.errors import LimbeckError


def batch() -> dict[str, torch.Tensor]:
    return dict(tiny.tokenizer()(tiny.sentences(4), padding=True, return_tensors="pt"))


def answers(model, rows) -> torch.Tensor:
    rows = {key: value for key, value in rows.items() if key != "token_type_ids"}
    with torch.no_grad():
        return model(**rows)[0]


def test_all_layers_answer_as_the_teacher_does(tmp_path):
    teacher = tiny.knowing_teacher(4)
    student = limbeck.build_student(teacher)
    assert type(student) is type(teacher) and not student.training
    assert student.config.id2label == {0: "negative", 1: "positive"}
    assert torch.equal(answers(student, batch()), answers(teacher, batch()))
    with torch.no_grad():
        student.classifier.weight.zero_()
    student.config.id2label[0] = "changed"
    assert teacher.classifier.weight.abs().sum() > 0 and teacher.config.id2label[0] == "negative"


def test_the_picked_layers_and_the_head_are_the_teachers(tmp_path):
    teacher = tiny.bert(4, id2label=dict(enumerate("abc")))
    student = limbeck.build_student(teacher, layers=[2, 4])
    assert student.config.num_hidden_layers == 2
    assert student.config.id2label == {0: "a", 1: "b", 2: "c"}
    theirs = teacher.state_dict()
    for key, weight in student.state_dict().items():
        theirs_key = re.sub(r"layer\.(\d)\.", lambda found: f"layer.{(1, 3)[int(found[1])]}.", key)
        assert torch.equal(weight, theirs[theirs_key]), key
    student.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert torch.equal(answers(loaded, batch()), answers(student, batch()))


@pytest.mark.parametrize(
    "head", [BertForTokenClassification, BertForQuestionAnswering, BertForMaskedLM]
)
def test_a_teacher_of_any_head_gives_it_on(head, tmp_path):
    config = tiny.bert(3).config.to_dict() | {"num_labels": 2}
    teacher = head(BertConfig(**config)).eval()
    student = limbeck.build_student(teacher, layers=3)
    assert type(student) is head
    assert torch.equal(answers(student, batch()), answers(teacher, batch()))
    tiny.save(teacher, tmp_path)
    read = limbeck.build_student(tmp_path, layers=3)
    assert type(read) is head
    assert torch.equal(answers(read, batch()), answers(teacher, batch()))


def test_where_one_token_is_read_the_last_layer_stays(tmp_path):
    def first_of(student, teacher) -> bool:
        ours, theirs = (model.bert.encoder.layer for model in (student, teacher))
        return torch.equal(ours[0].output.dense.weight, theirs[0].output.dense.weight)

    teacher = tiny.bert(4)
    student = limbeck.build_student(teacher, layers=2)
    last = teacher.bert.encoder.layer[3].output.dense.weight
    assert torch.equal(student.bert.encoder.layer[1].output.dense.weight, last)
    assert not first_of(student, teacher)
    assert first_of(limbeck.build_student(teacher, layers=2, pick="first"), teacher)
    words = BertForTokenClassification(teacher.config)
    assert first_of(limbeck.build_student(words, layers=2), words)


def test_a_single_number_stays_one():
    teacher = tiny.knowing_teacher(4, regression=True)
    student = limbeck.build_student(teacher, layers=2)
    assert student.config.num_labels == 1
    assert torch.equal(student.classifier.weight, teacher.classifier.weight)


def test_fresh_weights_need_no_task_either():
    teacher = tiny.bert(4, id2label=dict(enumerate("abc")))
    student = limbeck.build_student("fresh", teacher=teacher, layers=2, config={"hidden_size": 8})
    assert student.config.num_labels == 3 and student.config.hidden_size == 8


def test_without_a_task_a_checkpoint_needs_a_head(tmp_path):
    BertModel(BertConfig(**tiny.bert(2).config.to_dict())).save_pretrained(tmp_path)
    with pytest.raises(LimbeckError, match="no trained classification head"):
        limbeck.build_student(tmp_path, layers=1)
    with pytest.raises(LimbeckError, match="there is no teacher"):
        limbeck.build_student("teacher", layers=1)
