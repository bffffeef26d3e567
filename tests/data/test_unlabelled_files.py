"""Files of rows without labels: what is read of each type of file, and what is refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from limbeck.data.text_rows import read_unlabelled
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASKS

ONE, TWO = TASKS["sst2"], TASKS["mrpc"]


def texts(*sources, task=ONE, **options):
    files = read_unlabelled([str(source) for source in sources], task, **options)
    return [[column.to_pylist() for column in file.columns.values()] for file in files]


def write(path, content: str):
    path.write_text(content, encoding="utf-8")
    return path


def test_every_type_of_file(tmp_path):
    wanted = [[["good film", "a, plot"]]]
    lines = [json.dumps({"id": 1, "sentence": text}) for text in ("good film", "a, plot")]
    assert texts(write(tmp_path / "a.csv", 'sentence,id\ngood film,1\n"a, plot",2\n')) == wanted
    assert texts(write(tmp_path / "a.tsv", "id\tsentence\n1\tgood film\n2\ta, plot\n")) == wanted
    assert texts(write(tmp_path / "a.jsonl", "\n".join(lines))) == wanted
    assert texts(write(tmp_path / "a.txt", "good film\n\n  \na, plot\n")) == wanted
    table = pa.table({"sentence": ["good film", "a, plot"], "label": ["?", "?"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet") == wanted


def test_several_files_and_patterns_each_once(tmp_path):
    for name in "cab":
        write(tmp_path / f"{name}.txt", f"text {name}\n")
    wanted = [[["text c"]], [["text a"]], [["text b"]]]
    assert texts(tmp_path / "c.txt", tmp_path / "*.txt") == wanted


def test_pairs_by_the_releases_names_and_by_the_users(tmp_path):
    file = write(tmp_path / "a.tsv", "#1 String\t#2 String\nfirst\tsecond\n")
    assert texts(file, task=TWO) == [[["first"], ["second"]]]
    file = write(tmp_path / "a.csv", "left,right\nfirst,second\n")
    assert texts(file, task=TWO, text_columns=["left", "right"]) == [[["first"], ["second"]]]


def test_blank_rows_are_left_out_and_counted(tmp_path):
    file = write(tmp_path / "a.csv", "sentence,id\none,1\n ,2\n,3\ntwo,4\n")
    (read,) = read_unlabelled([str(file)], ONE)
    assert (next(iter(read.columns.values())).to_pylist(), read.blank) == (["one", "two"], 2)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_null_is_no_text(tmp_path, kind):
    """More rows than are packed at once, so that some pieces have gaps and some have none."""
    said = [f"text {number}" for number in range(10_000)]
    rows: list[dict] = [{"sentence": text} for text in said]
    rows[7:7] = [{"sentence": None}, {"sentence": ""}]
    file = tmp_path / f"a.{kind}"
    if kind == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), file)
    else:
        lines = [json.dumps(row) for row in rows]
        write(file, "\n".join([*lines, '{"id": 3}']))  # the key is missing
    (read,) = read_unlabelled([str(file)], ONE)
    assert next(iter(read.columns.values())).to_pylist() == said
    assert read.blank == (3 if kind == "jsonl" else 2)


def test_of_a_pair_one_may_be_null(tmp_path):
    lines = ['{"sentence1": "a", "sentence2": null}', '{"sentence1": null}', '{"sentence2": "b"}']
    (read,) = read_unlabelled([str(write(tmp_path / "a.jsonl", "\n".join(lines)))], TWO)
    assert [column.to_pylist() for column in read.columns.values()] == [["a", ""], ["", "b"]]
    assert read.blank == 1


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "text,id\none,1\n", "has no text column 'sentence'"),
        ("a.jsonl", '{"sentence": null}\n{"sentence": 3}\n', "row 2: sentence is 3"),
        ("a.jsonl", '{"sentence": null}\n{"sentence": " "}\n', "holds no text"),
        ("a.csv", "sentence\n \n", "holds no text"),
        ("a.txt", "\n", "holds no text"),
        ("a.pdf", "%PDF", "unknown file type '.pdf'"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, said):
    with pytest.raises(LimbeckError, match=said):
        texts(write(tmp_path / name, content))


def test_names_that_are_no_files(tmp_path):
    with pytest.raises(LimbeckError, match=r"there is no file .*/b\.csv"):
        texts(tmp_path / "b.csv")
    with pytest.raises(LimbeckError, match=r"no file has a name like .*\*.csv"):
        texts(tmp_path / "*.csv")
    with pytest.raises(LimbeckError, match=r"unlabelled: .* is a folder without files of rows"):
        texts(tmp_path)
    with pytest.raises(LimbeckError, match=r"1 text column \(text\), and task 'mrpc' reads 2"):
        texts(write(tmp_path / "a.txt", "one\n"), task=TWO)
