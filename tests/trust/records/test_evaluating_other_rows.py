"""Scores on other rows stand beside what a run measured, and never in its place."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

import tiny_runs as tiny
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill
from limbeck.scoring import evaluate

OWN = {"text_columns": ["review"], "label_column": "verdict"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    tiny.save(tiny.bert(1), folder / "start")
    tiny.write_csv(folder / "reviews.csv", 60)
    tiny.write_csv(folder / "others.csv", 14)
    given = {"task": "reviews", "data": str(folder / "reviews.csv"), **OWN}
    given |= {"student.init": str(folder / "start"), "max_steps": 1, "max_length": 24}
    recipe = Recipe.load("finetune", **given)
    distill(recipe, out=folder / "run", report=False)
    return folder


@pytest.fixture
def run(place, tmp_path) -> Path:
    return Path(shutil.copytree(place / "run", tmp_path / "run"))


def mark(run: Path, *, fingerprints: bool = True) -> dict:
    """Numbers that no model scores, so that whatever replaces them is seen."""
    record = json.loads((run / "record.json").read_text())
    marked = dict.fromkeys(record["scores"]["dev"], 12.34)
    record["scores"]["dev"] = marked
    del record["checksum"]
    if not fingerprints:
        record["examples"].pop("fingerprints", None)
    (run / "record.json").write_text(json.dumps(record))
    return marked


def test_other_data_stand_under_their_name_and_fingerprint(run, place):
    marked = mark(run)
    scores = evaluate(run, data=str(place / "others.csv"), **OWN)
    record = Record.load(run)
    assert record.scores["dev"] == marked
    (apart,) = record.scores.keys() - {"dev"}
    assert record.scores[apart] == scores
    assert apart.startswith("dev of others.csv #")
    assert record.examples.fingerprints[apart].startswith(apart.rpartition("#")[2])
    assert record.examples.fingerprints[apart] != record.examples.fingerprints["dev"]


def test_other_rows_of_one_file_name_stand_apart_too(run, place, tmp_path):
    again = tmp_path / "others.csv"
    tiny.write_csv(again, 15)
    for data in (place / "others.csv", again, again):
        evaluate(run, data=str(data), **OWN)
    assert len(Record.load(run).scores) == 3


def test_the_runs_own_rows_are_scored_and_nothing_is_replaced(run):
    marked = mark(run)
    assert evaluate(run) != marked
    assert Record.load(run).scores == {"dev": marked}


def test_rows_that_a_file_of_the_same_name_holds_now_are_others(run, place, tmp_path):
    """The file was changed after the run."""
    marked = mark(run)
    record = json.loads((run / "record.json").read_text())
    record.pop("checksum", None)
    record["recipe"]["data"] = str(tiny.write_csv(tmp_path / "reviews.csv", 80))
    (run / "record.json").write_text(json.dumps(record))
    evaluate(run)
    scores = Record.load(run).scores
    assert scores["dev"] == marked and len(scores) == 2


def test_without_a_fingerprint_nothing_is_replaced(run, caplog):
    """Records of earlier versions do not say which rows they speak of."""
    marked = mark(run, fingerprints=False)
    with caplog.at_level(logging.WARNING, "limbeck"):
        evaluate(run)
    scores = Record.load(run).scores
    assert scores["dev"] == marked
    (apart,) = scores.keys() - {"dev"}
    assert apart.startswith("dev of reviews.csv #") and apart in caplog.text


def test_a_split_of_other_data_does_not_pass_for_the_runs_own(run, place, tmp_path):
    """The run has scored no split of that name."""
    folder = tmp_path / "split"
    folder.mkdir()
    tiny.write_csv(folder / "train.csv", 10)
    tiny.write_csv(folder / "test.csv", 12)
    evaluate(run, data=str(folder), split="test", **OWN)
    assert not {"test"} & Record.load(run).scores.keys()
