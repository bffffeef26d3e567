"""Rows of a user's own in `DistillationTrainer`: the teacher's segment ids reach the teacher, and it alone."""

from __future__ import annotations

import logging

import pair_runs as pairs
import pytest
import torch
import transformers as hf
from datasets import Dataset

import tiny_runs as tiny
from limbeck.teachers.teacher import ModelInputs, Teacher
from limbeck.training import DistillationConfig, DistillationTrainer

TEXTS = (tiny.sentences(8), tiny.sentences(10)[2:])


def rows(names: list[str], texts: tuple[list[str], ...] = TEXTS) -> Dataset:
    encoded = pairs.tokenizer(names)(*texts)
    return Dataset.from_dict({**encoded, "labels": [0, 1] * 4, "index": list(range(8))})


def trainer(tmp_path, student, teacher, train: Dataset) -> DistillationTrainer:
    words = pairs.tokenizer(pairs.WITHOUT)
    arguments = hf.TrainingArguments(
        str(tmp_path),
        max_steps=2,
        per_device_train_batch_size=4,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    return DistillationTrainer(
        student,
        teacher,
        DistillationConfig.like(arguments, method="kd"),
        train_dataset=train,
        data_collator=hf.DataCollatorWithPadding(words),
    )


def one_segment() -> hf.PreTrainedModel:
    """A student that takes segment ids, and has one segment only."""
    settings = tiny.bert(2).config.to_dict() | {"type_vocab_size": 1, "architectures": None}
    config = hf.RobertaConfig(**settings)
    config.max_position_embeddings = 40
    return hf.RobertaForSequenceClassification(config)


@pytest.mark.parametrize("student", [pairs.distilbert, one_segment])
def test_segment_ids_in_the_rows_reach_the_teacher(tmp_path, monkeypatch, student):
    teacher = pairs.segmented()
    watched = pairs.Watched(monkeypatch)
    trainer(tmp_path, student(), teacher, rows(pairs.WITH)).train()
    assert len(watched.steps) == 2
    for numbers, trace, _ in watched.steps:
        chosen = [[column[number] for number in numbers] for column in TEXTS]
        batch = pairs.tokenizer(pairs.WITH)(*chosen, padding=True, return_tensors="pt")
        assert batch["token_type_ids"].any()
        with torch.no_grad():
            right = teacher(**batch).logits
        torch.testing.assert_close(trace.logits, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("train", "known", "warned"),
    [
        (rows(pairs.WITHOUT), False, True),
        (rows(pairs.WITHOUT), True, False),
        (rows(pairs.WITH), False, False),
        (rows(pairs.WITHOUT, TEXTS[:1]), False, False),
    ],
)
def test_segments_that_are_missing_are_missed(tmp_path, caplog, train, known, warned):
    teacher = Teacher(pairs.segmented())
    teacher.inputs = ModelInputs() if known else None
    with caplog.at_level(logging.WARNING, "limbeck"):
        trainer(tmp_path, pairs.distilbert(), teacher, train)
    assert ("no token_type_ids" in caplog.text) == warned


def test_a_teacher_without_segments_can_be_told_so(tmp_path, monkeypatch):
    """Beside a student with them, whose column the rows hold."""
    model = pairs.segmented()
    teacher = Teacher(model)
    teacher.inputs = ModelInputs(absent=frozenset({"token_type_ids"}))
    watched = pairs.Watched(monkeypatch)
    trainer(tmp_path, tiny.bert(2), teacher, rows(pairs.WITH)).train()
    for numbers, trace, _ in watched.steps:
        chosen = [[column[number] for number in numbers] for column in TEXTS]
        batch = pairs.tokenizer(pairs.WITHOUT)(*chosen, padding=True, return_tensors="pt")
        with torch.no_grad():
            right = model(**batch).logits
        torch.testing.assert_close(trace.logits, right, rtol=1e-5, atol=1e-5)
