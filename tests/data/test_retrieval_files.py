"""Files of queries and candidates: BEIR's layout, lists of one's own, and everything that may be wrong in them."""

import json
from pathlib import Path

import pytest
from datasets import Dataset

from limbeck.data import table
from limbeck.data.beir import beir_splits, is_beir, read_beir
from limbeck.data.candidates import pairs_in
from limbeck.support.errors import LimbeckError


def read_table(path):
    """A row for each candidate."""
    return pairs_in(table.read_table(path))


def lines(path: Path, *rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture
def beir(tmp_path) -> Path:
    lines(
        tmp_path / "queries.jsonl",
        {"_id": "q1", "text": "who lives"},
        {"_id": "q2", "text": "who sings"},
    )
    lines(
        tmp_path / "corpus.jsonl",
        {"_id": "d1", "title": "Cats", "text": "live", "metadata": {}},
        {"_id": "d2", "title": "", "text": "birds sing"},
    )
    (tmp_path / "qrels").mkdir()
    header = "query-id\tcorpus-id\tscore\n"
    (tmp_path / "qrels/test.tsv").write_text(f"{header}q1\td1\t2\nq1\td2\t-1\n")
    (tmp_path / "qrels/dev.tsv").write_text(f"{header}q2\td2\t1\n")
    return tmp_path


def test_beir(beir) -> None:
    found = read_beir(beir, "test")
    assert is_beir(beir) and beir_splits(beir) == ["dev", "test"]
    assert found.queries == {"q1": "who lives"}
    assert found.corpus == {"d1": "Cats live", "d2": "birds sing"}
    assert found.qrels == {"q1": {"d1": 2.0, "d2": 0.0}}


def test_beir_without_files(beir) -> None:
    (beir / "corpus.jsonl").unlink()
    (beir / "qrels/dev.tsv").unlink()
    (beir / "qrels/test.tsv").unlink()
    with pytest.raises(LimbeckError) as raised:
        beir_splits(beir)
    assert [problem.message.rsplit(" ", 1)[1] for problem in raised.value.problems] == [
        "corpus.jsonl",
        "qrels/SPLIT.tsv",
    ]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("qrels/dev.tsv", "query-id\tcorpus-id\tscore\nq9\td7\t1\n", "'q9'.*\n.*\n.*'d7'"),
        (
            "qrels/dev.tsv",
            "query-id\tcorpus-id\tscore\nq1\td1\tnan\n",
            "row 1: score is 'nan'",
        ),
        ("qrels/dev.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td1\t0\n", "judged twice"),
        ("qrels/dev.tsv", "q1\t0\td1\t1\nq1\t0\td2\t1\n", "has no column 'query-id'"),
        ("queries.jsonl", '{"_id": 1, "text": "a"}\n', "_id is 1, expected text"),
        ("queries.jsonl", '{"_id": "q2", "text": "a"}\n' * 2, "'q2' occurs twice"),
        ("corpus.jsonl", '{"_id": "d2", "text": " ", "title": ""}\n', "'d2' has no text"),
    ],
)
def test_beir_that_does_not_fit(beir, file, content, said) -> None:
    (beir / file).write_text(content)
    with pytest.raises(LimbeckError, match=said):
        read_beir(beir, "dev")


def test_no_such_split(beir) -> None:
    with pytest.raises(LimbeckError, match=r"no qrels/train\.tsv"):
        read_beir(beir, "train")


def test_candidates(tmp_path) -> None:
    path = lines(
        tmp_path / "candidates.jsonl",
        {"query": "a", "passages": ["x", "y"], "labels": [1, 0], "scores": [2.5, None]},
        {"query": "b", "documents": ["x"]},
        {"query": "c", "positive": "z", "negative": ["x", "y"]},
    )
    found = {name: list(column) for name, column in read_table(path).columns.items()}
    assert found == {
        "query": ["a", "a", "b", "c", "c", "c"],
        "passage": ["x", "y", "x", "z", "x", "y"],
        "label": [1, 0, None, 1, 0, 0],
        "score": [2.5, None, None, None, None, None],
    }


def test_candidates_in_parquet(tmp_path) -> None:
    row = {"query": "a", "passages": ["x", "y"], "scores": [1.5, 2.0]}
    Dataset.from_list([row]).to_parquet(tmp_path / "a.parquet")
    found = read_table(tmp_path / "a.parquet").columns
    assert [*found] == ["query", "passage", "score"]
    assert list(found["score"]) == [1.5, 2.0]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"query": "a", "passages": ["x", "x"]}, "occurs twice"),
        ({"query": "a", "passages": []}, "expected a list of texts"),
        ({"query": "a", "passages": ["x", 3]}, "holds 3"),
        ({"query": " ", "passages": ["x"]}, "the query is"),
        ({"query": "a", "passages": ["x", "y"], "labels": [1]}, "1 labels for 2 passages"),
        ({"query": "a", "passages": ["x"], "scores": [float("nan")]}, "scores holds nan"),
        ({"query": "a", "passages": ["x"], "labels": [-1]}, "below 0"),
        ({"query": "a", "passages": ["x"], "labels": ["1"]}, "labels holds '1'"),
        ({"query": "a", "positive": None}, "there are no passages"),
        ({"query": "a", "positive": ["x"]}, "negative is None"),
    ],
)
def test_candidates_that_do_not_fit(tmp_path, row, said) -> None:
    with pytest.raises(LimbeckError, match=said):
        read_table(lines(tmp_path / "a.jsonl", row))


def test_a_passage_twice_over_two_lines(tmp_path) -> None:
    row = {"query": "a", "passages": ["x"]}
    with pytest.raises(LimbeckError, match="row 2: a passage occurs twice"):
        read_table(lines(tmp_path / "a.jsonl", row, row))


def test_triplets_say_a_pair_as_often_as_they_like(tmp_path) -> None:
    rows = [
        {"query": "a", "positive": "p", "negative": "x"},
        {"query": "a", "positive": "p", "negative": "y"},
        {
            "query": "b",
            "positive": "p",
            "negative_2": "z",
            "negative_1": ["x", "y"],
            "negative_3": "",
        },
    ]
    found = read_table(lines(tmp_path / "a.jsonl", *rows)).columns
    assert [*zip(found["query"], found["passage"], found["label"], strict=True)] == [
        ("a", "p", 1), ("a", "x", 0), ("a", "y", 0),
        ("b", "p", 1), ("b", "x", 0), ("b", "y", 0), ("b", "z", 0),
    ]  # fmt: skip
    other = {"query": "a", "positive": "x", "negative": "y"}
    with pytest.raises(LimbeckError, match="row 4: a passage occurs twice"):
        read_table(lines(tmp_path / "b.jsonl", *rows, other))


def test_tables_without_lists_are_as_they_were(tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("query,passages\na,b\n")
    assert [*read_table(path).columns] == ["query", "passages"]
