"""A student that gives every row one answer has a score, and says nothing."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

import own_rows as own
import pytest
import torch
from datasets import Value

import tiny_runs as tiny
from limbeck import DistillationTrainer
from limbeck.cli.finished import last_lines, next_step
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError


def finetuned(folder: Path, start, **given):
    """A run that leaves its start's weights as they are."""
    tiny.save(start, folder / "start")
    given |= {"data": str(folder / "reviews.csv"), "text_columns": ["review"], "max_length": 24}
    given |= {"label_column": "verdict", "student.init": str(folder / "start"), "max_steps": 1}
    return distill(Recipe.load("finetune", **given, lr=1e-9), out=folder / "run", report=False)


@pytest.mark.parametrize("always", [True, False])
def test_a_run_that_ends_in_one_class_says_so_once(tmp_path, caplog, always):
    start = tiny.knowing_teacher()
    if always:
        with torch.no_grad():
            start.classifier.bias[1] = 100.0
    tiny.write_csv(tmp_path / "reviews.csv", 60)
    with caplog.at_level(logging.WARNING, logger="limbeck"):
        finetuned(tmp_path, start, test_share=0.1)
    found = [one for one in caplog.messages if "'positive'" in one]
    assert len(found) == always
    assert all(one.startswith("the model predicts 'positive' for every dev row") for one in found)


@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize("wrong", [False, True])
def test_the_next_command_never_names_a_teacher_that_is_refused(tmp_path, wrong, regression):
    start = tiny.knowing_teacher(regression=regression)
    if wrong:
        with torch.no_grad():
            start.classifier.weight.neg_()  # always the other class, but both of them
    tiny.write_csv(tmp_path / "reviews.csv", 60, regression=regression)
    run = finetuned(tmp_path, start)
    constant = run.record.best_constant
    answer = "the mean" if regression else "negative"
    assert (constant is None) == (not wrong)
    words = shlex.split(next_step(run.record, run.path))[1:]
    if not wrong:
        assert words[:2] == ["distill", "--method"]
        return
    assert constant.prediction == answer
    assert words[:2] == ["distill", str(run.path / "recipe.yaml")]
    lines = dict(last_lines(run.record, run.path))
    assert f"no better on dev than always predicting {answer!r}" in lines["Warning"]
    given = {"teacher": str(run.path), "data": run.record.data, "student.layers": 1}
    given |= {"text_columns": ["review"], "label_column": "verdict", "max_length": 24}
    with pytest.raises(LimbeckError, match=f"no better than always predicting {answer!r}"):
        distill(Recipe.load("kd", **given), out=tmp_path / "student", report=False)


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
