"""A run's student is scored on rows whose classes are called otherwise, or are others."""

from __future__ import annotations

import csv
import logging
import shutil
from pathlib import Path

import pytest
from transformers import BertConfig

import tiny_runs as tiny
from limbeck.preflight.model_checks import check_labels
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.scoring import evaluate
from limbeck.support.errors import LimbeckError
from limbeck.tasks.task import Task

OWN = {"text_columns": ["review"], "label_column": "verdict"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A run whose student is right on every row."""
    folder = tmp_path_factory.mktemp("classes")
    tiny.save(tiny.knowing_teacher(), folder / "start")
    tiny.write_csv(folder / "reviews.csv", 60)
    given = {"task": "reviews", "data": str(folder / "reviews.csv"), **OWN}
    given |= {"student.init": str(folder / "start"), "max_steps": 1, "lr": 1e-9, "max_length": 24}
    distill(Recipe.load("finetune", **given), out=folder / "run", report=False)
    return folder


@pytest.fixture
def run(place, tmp_path) -> Path:
    return Path(shutil.copytree(place / "run", tmp_path / "run"))


def renamed(place: Path, folder: Path, names: dict[str, str], third: str | None = None) -> str:
    with (place / "reviews.csv").open(encoding="utf-8") as stream:
        rows = list(csv.reader(stream))[1:]
    path = folder / "renamed.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["review", "verdict"])
        for number, (text, verdict, _) in enumerate(rows):
            writer.writerow([text, third if third and number % 9 == 0 else names[verdict]])
    return str(path)


def test_names_in_another_order_are_refused_by_the_students_answers(run, place, tmp_path):
    data = renamed(place, tmp_path, {"positive": "a good one", "negative": "poor"})
    with pytest.raises(LimbeckError, match=r"another order.*class 0 means 'poor'"):
        evaluate(run, data=data, **OWN)


def test_other_names_in_the_right_order_are_said(run, place, tmp_path, caplog):
    data = renamed(place, tmp_path, {"positive": "good", "negative": "bad"})
    with caplog.at_level(logging.WARNING, logger="limbeck"):
        assert evaluate(run, data=data, **OWN)["accuracy"] == 100
    assert "other names than the data's: negative, positive against bad, good" in caplog.text


def test_the_students_own_names_need_no_word(run, place, tmp_path, caplog):
    data = renamed(place, tmp_path, {"positive": "POSITIVE", "negative": "NEGATIVE"})
    with caplog.at_level(logging.WARNING, logger="limbeck"):
        assert evaluate(run, data=data, **OWN)["accuracy"] == 100
    assert "names" not in caplog.text


def test_a_class_that_the_student_does_not_have_is_named(run, place, tmp_path):
    data = renamed(place, tmp_path, {"positive": "positive", "negative": "negative"}, "neutral")
    with pytest.raises(
        LimbeckError, match=r"student: it has 2 outputs .*needs 3 .*neutral"
    ) as found:
        evaluate(run, data=data, **OWN)
    assert found.value.problems[0].fix.startswith("leave out or rename the rows of 'neutral'")


def test_one_strange_class_among_fewer_is_named(tmp_path):
    """It was no model of the task's, so the advice was to train another."""
    config = BertConfig(id2label={0: "HUM", 1: "LOC", 2: "NUM"})
    own = Task("q", "q", ("text",), ("FOO", "HUM"), (), "accuracy")
    (found,) = check_labels("student", config, own)
    assert found.fix.startswith("leave out or rename the rows of 'FOO', or give a student")
