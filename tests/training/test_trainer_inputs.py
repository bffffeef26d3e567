"""What both models are shown in a step: the same mixture, the rows' numbers, dropout if asked for."""

from __future__ import annotations

import copy

import pytest
import torch
from datasets import ClassLabel
from tiny_trainers import make, steps_logged, still

import tiny_runs as tiny
from limbeck.activations import Request
from limbeck.data import Collator
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import on_host
from limbeck.teachers.teacher import ModelInputs, Teacher
from limbeck.training import DistillationTrainer


def mixing(tmp_path, method: str, teacher=None, **changes):
    """A trainer that mixes as a recipe's first stage does, whose teacher is the student's twin."""
    stage = Recipe.load(method).stages()[0].recipe
    student = still(3)
    settings = {"objectives": stage.objectives, "mixup": stage.mixup}
    return make(
        tmp_path,
        teacher=teacher or copy.deepcopy(student),
        student=student,
        **(settings | changes),
    )


@pytest.mark.parametrize("method", ["l-ild-mixup", "cr-ild-released"])
def test_both_models_see_the_same_mixture(tmp_path, method):
    """Twins agree on it in the first step; on other mixtures they would not."""
    distances = Recipe.load("l-ild-mixup").stages()[0].recipe.objectives  # 0 between equals
    trainer = mixing(tmp_path, method, objectives=distances)
    trainer.train()
    first = steps_logged(trainer)[0]
    assert first["term/attention"] == pytest.approx(0.0, abs=1e-6)
    assert first["term/hidden"] == pytest.approx(0.0, abs=1e-6)


def test_every_step_mixes_anew(tmp_path):
    trainer = mixing(tmp_path, "cr-ild")
    shown = []
    given = trainer.transform.draw
    trainer.transform.draw = lambda *told: shown.append(given(*told)) or shown[-1]
    trainer.train()
    assert len(shown) == 3
    assert len({mixture.share for mixture in shown}) == 3
    assert all(sorted(mixture.partner.tolist()) == [0, 1, 2, 3] for mixture in shown)


def test_nothing_is_mixed_unless_asked(tmp_path):
    trainer = make(tmp_path, method="rail-kd-l")
    assert trainer.transform is None


def test_codir_remembers_every_row_of_an_epoch(tmp_path):
    trainer = make(tmp_path, method="codir", count=10)
    trainer.train()
    memory = trainer.objectives["contrast"].memory
    assert memory.labels.tolist() == [1 - row % 2 for row in range(10)]
    assert memory.vectors.norm(dim=-1).tolist() == pytest.approx([1.0] * 10)


@pytest.mark.parametrize("dropout", [False, True])
def test_a_teacher_s_dropout_stays_as_it_was_asked_for(tmp_path, dropout):
    teacher = Teacher(tiny.bert(4), dropout=dropout)
    trainer = make(tmp_path, method="kd-soft", teacher=teacher)
    trainer.train()
    assert teacher.model.training == dropout
    batch = Collator(tiny.tokenizer())(list(tiny.rows(4)))
    one, other = (teacher(batch, Request.of_logits()).logits for _ in range(2))
    assert torch.equal(one, other) != dropout
    assert all(weight.grad is None for weight in teacher.model.parameters())


def test_a_training_step_is_told_both(tmp_path, monkeypatch):
    """The loader leaves batches where they were made; evaluation's go where the Trainer puts them."""
    trainer = make(tmp_path)
    given, told = [], []
    prepare, loss = DistillationTrainer._prepare_inputs, DistillationTrainer.compute_loss

    def preparing(self, inputs):
        given.append(inputs)
        return prepare(self, inputs)

    def watching(self, model, inputs, *args, **kwargs):
        told.append(on_host(inputs))
        return loss(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(DistillationTrainer, "_prepare_inputs", preparing)
    monkeypatch.setattr(DistillationTrainer, "compute_loss", watching)
    trainer.train()
    assert len(given) == 3
    assert all(one is other for one, other in zip(given, told, strict=True))
    assert trainer.get_train_dataloader().device is None
    assert trainer.get_eval_dataloader(tiny.rows(4)).device == trainer.args.device


def test_rows_with_their_class_names_in_another_order_are_refused(tmp_path):
    student = still()
    student.config.id2label, student.config.label2id = {0: "no", 1: "yes"}, {"no": 0, "yes": 1}
    trainer = make(tmp_path, student=student)
    plain = trainer.train_dataset
    (column,) = {"label", "labels"} & {*plain.column_names}
    trainer.train_dataset = plain.cast_column(column, ClassLabel(names=["yes", "no"]))
    with pytest.raises(
        LimbeckError, match="another order than the student: yes, no against no, yes"
    ):
        trainer.train()
    # What the error offers.
    aligned = trainer.train_dataset.align_labels_with_mapping(student.config.label2id, column)
    trainer.train_dataset = aligned
    trainer.train()
    assert aligned[column] == [1 - label for label in plain[column]]


def test_a_teacher_of_other_tokens_is_warned_of_unless_it_has_its_own_column(tmp_path, caplog):
    teacher, student = still(3), still()
    student.resize_token_embeddings(student.config.vocab_size + 200)
    make(tmp_path, student=student, teacher=teacher)
    assert "both read the same token ids" in caplog.text
    caplog.clear()
    own = Teacher(teacher)
    own.inputs = ModelInputs(own={"input_ids": "teacher_input_ids"})
    make(tmp_path, student=student, teacher=own)
    student.resize_token_embeddings(student.config.vocab_size - 150)  # rounded up
    make(tmp_path, student=student, teacher=teacher)
    assert "token ids" not in caplog.text
