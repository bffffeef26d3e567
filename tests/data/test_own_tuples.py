"""Pairs and triplets for embedding models: columns, lists and graded pairs, and what may be wrong."""

import json
from math import isnan
from pathlib import Path

import pytest

import tiny_runs as tiny
from limbeck.data import Division, encode, load_task
from limbeck.support.errors import LimbeckError
from limbeck.tasks import EMBEDDING

DEV = "sentence1,sentence2,score\na b,a c,3\na,c d,1\n"


@pytest.fixture
def dev(tmp_path) -> Path:
    place = tmp_path / "scored.csv"
    place.write_text(DEV)
    return place


def load(path: Path, dev: Path, rows, **given):
    """The train split's texts by row, and its similarities."""
    text = rows if isinstance(rows, str) else "".join(f"{json.dumps(row)}\n" for row in rows)
    path.write_text(text)
    task, splits = load_task(None, path, kind="embedding", division=Division(dev=dev), **given)
    assert task.kind is EMBEDDING
    train = splits["train"]
    texts = zip(*(train[column][:] for column in task.text_columns), strict=True)
    return [[text for text in row if text] for row in texts], train["score"][:]


@pytest.mark.parametrize(("rows", "expected"), [
    ("anchor,positive\na,b\nc,d\n", [["a", "b"], ["c", "d"]]),
    ("negative_2,query,answer,negative_1\nz,a,b,y\n,c,d,\n", [["a", "b", "y", "z"], ["c", "d"]]),
    ([{"question": "a", "positive": "b", "negative": "c"}], [["a", "b", "c"]]),
    ([{"query": "a", "positive": "b", "negative": "c"}] * 2, [["a", "b", "c"]] * 2),
    ([{"query": "a", "positive": ["b", "c"], "negative": ["y", "z"]}],
     [["a", "b", "y", "z"], ["a", "c", "y", "z"]]),
    ([{"query": "a", "passages": ["w", "b", "c"], "labels": [0, 2, None]}], [["a", "b", "w"]]),
    ("query,passage,label\na,b,1\nc,d,1\na,y,0\n", [["a", "b", "y"], ["c", "d"]]),
    ("query,passage\na,b\n", [["a", "b"]]),
])  # fmt: skip
def test_files_hold_tuples(rows, expected, tmp_path, dev) -> None:
    path = tmp_path / ("rows.csv" if isinstance(rows, str) else "rows.jsonl")
    found, scores = load(path, dev, rows)
    assert found == expected and scores == [1.0] * len(expected)


@pytest.mark.parametrize("rows", [
    [{"query": "a", "passages": ["c", "b"], "scores": [1, 2]}, {"query": "d", "passages": ["c"]},
     {"query": "a", "passages": ["e"]}],
    "query,passage,score\na,c,1\na,b,2\nd,c,0\na,e,1\na,b,2\n",
    "query,passage,label,score\na,c,,1\na,b,,2\nd,c,,0\na,e,,1\n",
])  # fmt: skip
def test_candidates_that_nobody_judged_are_rows_of_all_of_them(rows, tmp_path, dev) -> None:
    path = tmp_path / ("rows.csv" if isinstance(rows, str) else "rows.jsonl")
    found, scores = load(path, dev, rows)
    assert found == [["a", "c", "b", "e"], ["d", "c"]] and all(map(isnan, scores))
    task, splits = load_task(None, path, kind="embedding", division=Division(dev=dev))
    encoded, _ = encode(splits["train"], task, tiny.tokenizer(), 8)
    assert encoded["query_id"][:] == [0, 0, 0, 0, 1, 1]
    assert [None if isnan(g) else g for g in encoded["grade"][:]] == [None, -1, -1, -1, None, -1]


def test_named_columns_are_tuples_in_their_order(tmp_path, dev) -> None:
    found, scores = load(tmp_path / "rows.csv", dev, "x,y,z\na,b,c\n", text_columns=["z", "x", "y"])
    assert found == [["c", "a", "b"]] and scores == [1.0]


@pytest.mark.parametrize("rows", ["sentence1,sentence2\na,b\n", "sentence\na\n"])
def test_sentences_are_none(rows, tmp_path, dev) -> None:
    _, scores = load(tmp_path / "rows.csv", dev, rows)
    assert all(map(isnan, scores))


def test_every_text_knows_its_tuple_and_what_it_is_there(tmp_path, dev) -> None:
    (tmp_path / "rows.csv").write_text("anchor,positive,negative\na,b,c\nd,e,\n")
    task, splits = load_task(
        None, tmp_path / "rows.csv", kind="embedding", division=Division(dev=dev)
    )
    encoded, _ = encode(splits["train"], task, tiny.tokenizer(), 8)
    assert encoded["query_id"][:] == [0, 0, 0, 1, 1]
    assert [None if isnan(g) else g for g in encoded["grade"][:]] == [None, 1, 0, None, 1]
    plain = tmp_path / "plain.txt"
    plain.write_text("a\nb\nc\n")
    task, splits = load_task(None, plain, kind="embedding", division=Division(dev=dev))
    encoded, _ = encode(splits["train"], task, tiny.tokenizer(), 8)
    assert len(set(encoded["query_id"][:])) == 3 and all(map(isnan, encoded["grade"][:]))


@pytest.mark.parametrize(("rows", "message"), [
    ("anchor,positive\na,\n", "positive is '', expected text"),
    ([{"anchor": "a", "positive": ["b"], "negative": ["c"]}], "write lists next to a text 'query'"),
    ([{"anchor": "a", "positive": "b", "negative": 3}],
     "row 1: negative is 3(.|\n)*--text-columns QUERY POSITIVE .* there are anchor, positive, negative"),
    ([{"q": "a", "pos": "b"}], "usual name among q, pos(.|\n)*--text-columns QUERY POSITIVE"),
    ([{"query": "a", "passages": ["b", "c"], "labels": [0, 0]}], "no query has a passage"),
    ("query,passage,label\na,b,yes\n", "label is 'yes'"),
])  # fmt: skip
def test_what_is_no_tuple_is_refused(rows, message, tmp_path, dev) -> None:
    path = tmp_path / ("rows.csv" if isinstance(rows, str) else "rows.jsonl")
    with pytest.raises(LimbeckError, match=message):
        load(path, dev, rows)
