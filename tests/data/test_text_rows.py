"""Rows to be labelled: the texts of any source, whatever else it holds."""

from __future__ import annotations

import numpy as np
import pytest

from limbeck.data.row_ids import row_ids
from limbeck.data.text_rows import joined, read_text_rows
from limbeck.support.errors import LimbeckError

TEXTS = ["a b", "c", "a b", "d e f", "c", "g"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,text,other\n" + "".join(f"{n},{t},x {n}\n" for n, t in enumerate(TEXTS)))
    return path


@pytest.mark.parametrize("piece", [1, 4, 100])
def test_ids_and_texts_do_not_depend_on_how_much_is_read_at_once(path, monkeypatch, piece):
    monkeypatch.setattr("limbeck.data.row_ids._PIECE", piece)
    rows = read_text_rows(path, text_columns=["text"])
    assert rows.ids.tolist() == row_ids([TEXTS]).tolist()
    assert rows.first.tolist() == [0, 1, 3, 5]
    for places in ([3, 5], [5, 0, 3], [1], []):
        chosen = rows.take(np.array(places, dtype=np.int64))
        assert chosen == {"sentence": [TEXTS[place] for place in places]}


def test_pairs_keep_their_order(path):
    rows = read_text_rows(path, text_columns=["other", "text"])
    assert rows.take(np.array([1])) == {"sentence1": ["x 1"], "sentence2": ["c"]}
    assert [*read_text_rows(path, text_columns=["text", "other"]).ids] != [*rows.ids]


def test_several_sources_stand_below_each_other(path, tmp_path):
    (tmp_path / "more.txt").write_text("h\n\ni\n")
    parts = [read_text_rows(path, text_columns=["text"]), read_text_rows(tmp_path / "more.txt")]
    both = joined(parts)
    assert both.take(np.arange(8))["sentence"] == [*TEXTS, "h", "i"]
    assert both.source == (str(path), str(tmp_path / "more.txt"))
    assert len(read_text_rows(f"{tmp_path}/*.txt")) == 2


def test_a_text_and_a_pair_are_not_put_together(path):
    pair = read_text_rows(path, text_columns=["text", "other"])
    with pytest.raises(LimbeckError, match="one text in a row"):
        joined([read_text_rows(path, text_columns=["text"]), pair])


@pytest.mark.parametrize(
    ("columns", "task", "said"),
    [
        (("nothing",), None, "no text column 'nothing'"),
        (("id", "text", "other"), None, "3 text columns"),
        (("text",), "mrpc", "reads 2"),
    ],
)
def test_columns_that_are_not_known_are_asked_for(path, columns, task, said):
    with pytest.raises(LimbeckError, match=said):
        read_text_rows(path, task=task, text_columns=columns)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("id,text,other", ["1"]),
        ("other,label,sentence", ["2"]),
        ("text,question2,question1", ["2", "1"]),
        ("label,review", ["1"]),
        ("review,other", None),
    ],
)
def test_columns_of_usual_names_are_taken_as_training_takes_them(tmp_path, header, expected):
    """Each cell holds the number of its column, counted from 0."""
    columns = header.split(",")
    numbers = map(str, range(len(columns)))
    file = tmp_path / "rows.csv"
    file.write_text(f"{header}\n{','.join(numbers)}\n")
    if expected is None:
        with pytest.raises(LimbeckError, match=r"no text columns are named"):
            read_text_rows(file)
    else:
        rows = read_text_rows(file)
        assert [text for (text,) in rows.take(np.array([0])).values()] == expected
        assert [*rows.names] == [columns[int(place)] for place in expected]


def test_a_text_that_is_missing_in_a_row_hides_no_column(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": 1, "text": "a"}\n{"id": 2, "text": null}\n')
    rows = read_text_rows(file)
    assert (len(rows), rows.blank, rows.names) == (1, 1, ("text",))


def test_a_folder_without_rows_is_refused(tmp_path):
    with pytest.raises(LimbeckError, match="without files of rows"):
        read_text_rows(tmp_path)


def test_candidates_of_queries_are_pairs_however_they_are_written(tmp_path):
    lists = tmp_path / "lists.jsonl"
    lists.write_text(
        '{"query": "q", "passages": ["a", "b"]}\n{"query": "r", "documents": ["c"], "labels": [1]}\n'
    )
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("label,passage,query\n1,a,q\n0,b,q\n,c,r\n")
    for file in (lists, pairs):
        rows = read_text_rows(file)
        assert rows.names == ("query", "passage")
        assert rows.take(np.arange(3)) == {"sentence1": ["q", "q", "r"], "sentence2": [*"abc"]}


def test_a_folder_in_beirs_layout_is_what_training_reads_of_it(tmp_path):
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "cats sing"}\n')
    corpus = ["cats sing now", "dogs bark"]
    lines = (f'{{"_id": "d{n}", "title": "", "text": "{text}"}}\n' for n, text in enumerate(corpus))
    (tmp_path / "corpus.jsonl").write_text("".join(lines))
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels/train.tsv").write_text("query-id\tcorpus-id\tscore\nq\td1\t1\n")
    rows = read_text_rows(tmp_path)
    assert rows.names == ("query", "passage")
    assert [*rows.take(np.arange(2)).values()] == [["cats sing"] * 2, corpus[::-1]]
