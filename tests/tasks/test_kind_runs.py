"""Whole runs of every kind on a user's own files: teacher, student by `kd` and by hidden states."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers as hf

import kind_models as tiny
from limbeck.activations import Request
from limbeck.data import Collator
from limbeck.outputs.remembering import RememberingTeacher
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.scoring import evaluate
from limbeck.support.errors import LimbeckError
from limbeck.tasks import MASKED, get_task, get_task_type
from limbeck.teachers.teacher import Teacher
from limbeck.training import DistillationConfig, DistillationTrainer
from quick_cases import quick

AUTO = {
    "tokens": hf.AutoModelForTokenClassification,
    "spans": hf.AutoModelForQuestionAnswering,
    "masked": hf.AutoModelForMaskedLM,
    "causal-lm": hf.AutoModelForCausalLM,
    "text": hf.AutoModelForSeq2SeqLM,
}


@pytest.mark.parametrize("kind", quick("spans", of=AUTO))
def test_a_teacher_learns_and_a_student_is_cut_from_it(kind, settings, teachers, tmp_path):
    teacher = teachers[kind]
    baseline = {"tokens": 40, "spans": 20, "masked": 25, "causal-lm": 40, "text": 60}[kind]
    assert teacher.scores["dev"]["primary"] > baseline
    given = settings(
        kind, epochs=1, teacher=str(teacher.path),
        **{"student.init": "teacher", "student.layers": 2},
    )  # fmt: skip
    student = distill(Recipe.load("kd", **given), out=tmp_path / "kd", report=kind == "spans")
    assert student.record.epochs[0].train.keys() == {"loss", "hard", "soft"}
    assert (student.path / "report.html").is_file() == (kind == "spans")
    shipped = AUTO[kind].from_pretrained(student.path / "student")
    assert type(shipped) is type(teacher.student) is type(student.student)
    assert shipped.config.num_hidden_layers == 2
    hidden = distill(Recipe.load("pkd-skip", **given), out=tmp_path / "pkd", report=False)
    assert "patience" in hidden.record.epochs[0].train
    beside = {"teacher_agreement", "teacher_kl"} if kind == "causal-lm" else set()
    again = evaluate(hidden.path)
    assert {*hidden.scores["dev"]} == {*again} | beside
    assert again == pytest.approx({name: hidden.scores["dev"][name] for name in again})
    answers = json.loads((hidden.path / "predictions.json").read_text())["dev"]
    assert len(answers["index"]) == len(answers["prediction"]) == len(answers["label"])
    assert student.record.student.flops_per_example < student.record.teacher.flops_per_example


@pytest.mark.parametrize("kind", quick("spans", of=AUTO))
def test_a_student_starts_as_its_teacher_with_the_same_head(kind, settings, teachers, tmp_path):
    given = settings(kind, teacher=str(teachers[kind].path), **{"student.init": "teacher"})
    prepared = prepare(Recipe.load("kd", **given))
    ours, theirs = prepared.student.state_dict(), prepared.teacher.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    fresh = prepare(
        Recipe.load(
            "kd",
            **given | {"student.init": "fresh", "student.config": {"d_model": 24, "num_heads": 3}}
            if kind == "text"
            else given
            | {
                "student.init": "fresh",
                "student.config": {"hidden_size": 24, "num_attention_heads": 3},
            },
        )
    )
    assert fresh.student.config.hidden_size == 24


def test_a_remembering_teacher_asks_live_about_tokens():
    for kind in AUTO:
        model = tiny.model(kind)
        batch = tiny.ids(5, 4)
        if kind == "text":
            batch["labels"] = torch.tensor([[7, 3], [8, 3]])
        live, remembering = Teacher(model), RememberingTeacher(Teacher(model))
        for offset in (0, 1):  # the same indices, other tokens
            changed = batch | {"input_ids": (batch["input_ids"] + offset) % len(tiny.PIECES)}
            found = [t(changed, Request.of_logits()).logits for t in (live, remembering)]
            assert torch.equal(*found)


def test_a_trainer_hands_out_plain_logits_unless_asked(tmp_path):
    collate = Collator(tiny.tokenizer(), kind=MASKED)
    rows = [{"input_ids": [2, 9, 10, 3], "attention_mask": [1] * 4, "index": n} for n in range(3)]
    from datasets import Dataset

    shapes = []
    for compact in (False, True):
        arguments = hf.TrainingArguments(str(tmp_path), use_cpu=True, report_to=[])
        config = DistillationConfig.like(arguments, method="finetune", compact_metrics=compact)
        trainer = DistillationTrainer(tiny.model("masked"), None, config, data_collator=collate)
        found = trainer.predict(Dataset.from_list(rows))
        shapes.append(found.predictions.shape)
        assert np.isfinite(found.metrics["test_loss"])
    assert shapes == [(3, 4, len(tiny.PIECES)), (3, 3)]


def test_a_student_of_tokens_cannot_be_scored_on_sentences(teachers):
    with pytest.raises(LimbeckError, match=r"cannot be scored on|no such file|needs no download"):
        evaluate(teachers["tokens"].path, "sst2", "pocket")
    assert get_task_type("tokens") is get_task("ner").kind
