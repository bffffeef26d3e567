"""Runs on more rows than are encoded before the first step; a few count as many here."""

from __future__ import annotations

import csv
import itertools

import numpy as np
import pytest
import torch

import tiny_runs as tiny
from limbeck.data import load_task
from limbeck.data.encoding import LazyRows, encode
from limbeck.run import distill
from limbeck.run.earlier_run import digests
from limbeck.run.prepare import prepare

TEXTS = [
    " ".join([tiny.WORDS[row % 2], *words])
    for row, words in enumerate(itertools.permutations(tiny.WORDS[2:], 3))
]
COLUMNS = {"text_columns": ["review"], "label_column": "verdict"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    with (folder / "own.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["review", "verdict"])
        writer.writerows([text, "" if row % 3 else text[:4]] for row, text in enumerate(TEXTS[:60]))
    (folder / "more.txt").write_text("\n".join(TEXTS[60:90]) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def few_are_many(monkeypatch):
    monkeypatch.setattr("limbeck.data.encoding.AT_ONCE", 20)


def settings(data, **changes):
    given = {"data": str(data / "own.csv"), "unlabelled": [str(data / "more.txt")]}
    return given | {"epochs": 1, "group_by_length": False} | changes


def test_examples_are_those_that_are_encoded_at_once(data):
    task, splits = load_task("reviews", data / "own.csv", **COLUMNS)
    at_once, _ = encode(splits["train"], task, tiny.tokenizer(), 24)
    lazy = LazyRows(splits["train"], task, tiny.tokenizer(), 24)
    assert sorted(lazy.column_names) == sorted(at_once.column_names)
    assert list(lazy) == list(at_once)
    some = lazy.select([5, 3]).select(np.array([1]))
    assert list(some) == [at_once[3]] and some.numbers.tolist() == [at_once[3]["index"]]
    assert lazy.labels.tolist() == at_once["labels"][:]
    assert lazy.lengths.tolist() == [len(text) for text in splits["train"]["sentence"]]
    assert lazy.mean_tokens == np.mean([len(ids) for ids in at_once["input_ids"]])
    with pytest.raises(IndexError):
        lazy[len(lazy)]


@pytest.mark.parametrize("share", [pytest.param(None, marks=pytest.mark.slow), 0.25])
@pytest.mark.slow
def test_the_student_is_the_same(data, recipe, tmp_path, monkeypatch, share, capsys):
    given = recipe("kd", **settings(data, labelled_share=share, cache="auto"))
    at_once = distill(given, out=tmp_path / "at-once", report=False)
    monkeypatch.setattr("limbeck.data.encoding.AT_ONCE", 20)
    assert isinstance(prepare(given).train.encoded, LazyRows)
    capsys.readouterr()
    in_turn = distill(given, out=tmp_path / "in-turn", report=False, show=True)
    (reason,) = in_turn.record.execution.live_because.values()
    assert "rows are encoded, and labeled by the teacher, batch by batch; cache=always" in reason
    assert f"teacher outputs are not stored: {reason}" in capsys.readouterr().err.replace("\n", " ")
    assert at_once.record.execution.live_because == {}
    states = at_once.student.state_dict(), in_turn.student.state_dict()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    assert in_turn.record.stages[0].tokens == at_once.record.stages[0].tokens
    assert in_turn.record.examples.truncated == {"dev": 0}


@pytest.mark.slow
def test_workers_and_groups_by_length(data, recipe, tmp_path, few_are_many):
    given = recipe("alp-kd", **settings(data, group_by_length=True, workers=1))
    assert distill(given, out=tmp_path / "run", report=False).record.status == "finished"


@pytest.mark.parametrize("changes", [{"cache": "always"}, {"kind": "sentence", "max_length": 23}])
def test_what_is_encoded_at_once_all_the_same(data, recipe, few_are_many, changes):
    lazy = "cache" not in changes
    prepared = prepare(recipe("kd", **settings(data, **changes)))
    assert isinstance(prepared.train.encoded, LazyRows) == lazy


def test_other_rows_are_seen_to_be_others(data, recipe, few_are_many, tmp_path):
    first = digests(prepare(recipe("kd", **settings(data))))
    assert first == digests(prepare(recipe("kd", **settings(data))))
    other = tmp_path / "more.txt"
    other.write_text("\n".join([*TEXTS[60:89], TEXTS[90]]) + "\n", encoding="utf-8")
    changed = digests(prepare(recipe("kd", **settings(data, unlabelled=[str(other)]))))
    assert {name for name in first if first[name] != changed[name]} == {"training rows"}
