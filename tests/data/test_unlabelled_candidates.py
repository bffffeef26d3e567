"""Queries with candidates that nobody judged, beside those that have grades."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from limbeck.data import load_task
from limbeck.data.text_rows import read_unlabelled, with_unlabelled

JUDGED = [
    {"query": f"who saw {name}", "passages": [f"ann saw {name}", "the end"], "labels": [1, 0]}
    for name in ("lee", "rome", "the cat", "annabelle")
]
NEW = {("who is lee", "lee is ann"), ("who is lee", "the end"), ("who is ann", "ann is lee")}
# It is among the judged ones already.
OLD = ("who saw rome", "the end")


@pytest.fixture
def data(tmp_path):
    for split, rows in (("train", JUDGED[:2]), ("dev", JUDGED[2:])):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{split}.jsonl").write_text(lines)
    return tmp_path


def lists(path):
    path = path / "more.json"
    rows: dict[str, list[str]] = {}
    for query, passage in sorted({*NEW, OLD}):
        rows.setdefault(query, []).append(passage)
    lines = [json.dumps({"query": query, "passages": texts}) for query, texts in rows.items()]
    path = path.with_suffix(".jsonl")
    path.write_text("\n".join(lines))
    return path


def pairs(path):
    return written(path, ["query", "passage", "label"], [(*pair, "1") for pair in {*NEW, OLD}])


def triplets(path):
    """As in published files: a query's positive stands with each of its negatives."""
    header = ["query", "positive", "negative"]
    rows = [("who is lee", "lee is ann", negative) for negative in ("the end", "ann is lee")]
    return written(path, header, rows)


def written(path, header, rows):
    path = path / "more.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.mark.parametrize("write", [lists, pairs])
def test_pairs_are_added_without_a_grade_whatever_the_file_says(data, write):
    task, splits = load_task("mine", data, kind="pair-score")
    files = read_unlabelled([str(write(data))], task)
    found, counts = with_unlabelled(task, splits, files, "refuse")
    train = found["train"]
    assert (counts.kept, counts.repeated) == (3, 1)
    texts = list(zip(train["query"], train["passage"], strict=True))
    unknown = np.isnan(train["label"][:])
    assert {pair for pair, none in zip(texts, unknown, strict=True) if none} == NEW
    assert unknown.sum() == 3 and len(train) == 7


def test_triplets_are_a_pair_for_each_of_their_passages(data):
    task, _ = load_task("mine", data, kind="pair-score")
    named = ["query", "positive", "negative"]
    (file,) = read_unlabelled([str(triplets(data))], task, text_columns=named)
    columns = [column.to_pylist() for column in file.columns.values()]
    passages = {"lee is ann", "the end", "ann is lee"}
    assert sorted(zip(*columns, strict=True)) == sorted(("who is lee", one) for one in passages)
