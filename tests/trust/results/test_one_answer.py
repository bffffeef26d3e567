"""A student that gives every row one answer has a score, and says nothing."""

from __future__ import annotations

import logging

import own_rows as own
import pytest
import torch
from datasets import Value

import tiny_runs as tiny
from limbeck import DistillationTrainer
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError


@pytest.mark.parametrize("always", [True, False])
def test_a_run_that_ends_in_one_class_says_so(tmp_path, caplog, always):
    start = tiny.knowing_teacher()
    if always:
        with torch.no_grad():
            start.classifier.bias[1] = 100.0
    tiny.save(start, tmp_path / "start")
    tiny.write_csv(tmp_path / "reviews.csv", 60)
    given = {"task": "reviews", "data": str(tmp_path / "reviews.csv"), "text_columns": ["review"]}
    given |= {"label_column": "verdict", "student.init": str(tmp_path / "start"), "max_steps": 1}
    recipe = Recipe.load("finetune", **given, lr=1e-9, max_length=24)
    with caplog.at_level(logging.WARNING, logger="limbeck"):
        distill(recipe, out=tmp_path / "run", report=False)
    assert ("answers all 6 rows of dev with 'positive'" in caplog.text) == always


def labelled(kind: str):
    return tiny.rows(8).cast_column("labels", Value(kind))


def trainer(folder, rows) -> DistillationTrainer:
    return DistillationTrainer(
        tiny.bert(2),
        tiny.bert(3),
        own.arguments(folder, max_steps=1),
        train_dataset=rows,
        data_collator=own.OwnCollator(),
    )


def test_labels_that_are_true_and_false_are_classes(tmp_path):
    found = []
    for kind in ("int64", "bool"):
        taught = trainer(tmp_path, labelled(kind))
        taught.train()
        found.append(taught.state.log_history[0]["loss"])
    assert found[0] == found[1]


def test_numbers_for_a_classifier_are_refused_in_words(tmp_path):
    with pytest.raises(LimbeckError, match=r"labels are torch.float32, and the head has 2 classes"):
        trainer(tmp_path, labelled("float32")).train()
