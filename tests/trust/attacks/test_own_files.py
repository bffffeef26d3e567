"""Files that a program or an attacker wrote: labels no one meant, pipes, long fields, too many rows."""

import json
import math
import os

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from limbeck.data import load_task
from limbeck.data.table import ArrowColumn, read_table
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASKS

COLUMNS = {"text_columns": ["q"], "label_column": "y"}


def csv_of(path, labels, texts=None):
    rows = [f"{'good' if texts is None else texts[i]} {i},{y}" for i, y in enumerate(labels)]
    path.write_text("q,y\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def refusal(path, name=None, **options) -> str:
    with pytest.raises(LimbeckError) as caught:
        load_task(name, path, **(COLUMNS | options))
    assert all(problem.fix for problem in caught.value.problems)
    return str(caught.value)


SCORES = [f"{i / 50:.2f}" for i in range(200)]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([*SCORES, "n/a"], "holds 200 different numbers, and in 1 of 201 rows no number: 'n/a'"),
        ([*map(str, range(200)), "?"], "in 1 of 201 rows no number"),
        (["pos", "neg", "pos "] * 9, "'pos' (9 rows), 'pos ' (9 rows)"),
        (["caf\u00e9", "neg", "cafe\u0301"] * 9, "writes one class in several ways"),
    ],
)
def test_labels_that_no_one_can_have_meant(tmp_path, labels, said):
    assert said in refusal(csv_of(tmp_path / "d.csv", labels))


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([*SCORES, "nan"], "1 of 201 rows have no label in y, the first is row 201"),
        ([*SCORES, " "], "1 of 201 rows have no label"),
        ([*SCORES, "inf"], "1 of 201 rows"),
        (["pos", "neg", "NaN", "pos"] * 9, "9 of 36 rows have no label in y, the first is row 3"),
        (["pos", "neg", "", "pos"] * 9, "9 of 36 rows have no label"),
    ],
)
def test_rows_that_are_scored_have_labels(tmp_path, labels, said):
    csv_of(tmp_path / "train.csv", [label for label in labels if label.strip(" iafnN")] * 2)
    csv_of(tmp_path / "dev.csv", labels)
    assert said in refusal(tmp_path)


@pytest.mark.parametrize("gap", ["", " ", "nan", "NaN"])
def test_rows_without_a_label_are_trained_on_and_never_scored(tmp_path, gap):
    task, splits = load_task(None, csv_of(tmp_path / "d.csv", ["pos", gap, "neg"] * 20), **COLUMNS)
    assert task.labels == ("neg", "pos")
    assert sorted(splits["dev"]["label"]) == [0, 0, 1, 1]
    assert sorted(splits["train"]["label"][:]) == [-100] * 20 + [0] * 18 + [1] * 18
    assert len(splits["train"]) == 56


def test_numbers_with_gaps_stay_numbers(tmp_path):
    task, splits = load_task(None, csv_of(tmp_path / "d.csv", [*SCORES, "nan", ""]), **COLUMNS)
    assert task.regression
    assert sum(math.isnan(number) for number in splits["train"]["label"]) == 2
    assert not any(math.isnan(number) for number in splits["dev"]["label"])


def test_a_file_without_any_label_needs_a_labelled_dev_file(tmp_path):
    csv_of(tmp_path / "train.csv", [""] * 9, texts=["more"] * 9)
    assert "all of 9 rows have no label in y" in refusal(tmp_path / "train.csv")
    csv_of(tmp_path / "dev.csv", ["pos", "neg"] * 3)
    task, splits = load_task(None, tmp_path, **COLUMNS)
    assert (task.labels, splits["train"]["label"][:]) == (("neg", "pos"), [-100] * 9)
    (tmp_path / "train.csv").write_text("q\none\ntwo\n", encoding="utf-8")
    assert load_task(None, tmp_path, **COLUMNS)[1]["train"]["label"][:] == [-100, -100]


@pytest.mark.parametrize("labels", [["1", "2", "3+"], ["Pos", "neg", "pos"]])
def test_labels_that_may_be_meant_are_classes_and_said_to_be(tmp_path, labels):
    task, _ = load_task(None, csv_of(tmp_path / "d.csv", labels * 9), **COLUMNS)
    assert [*task.labels] == labels and f"3 classes, {', '.join(labels)}" in task.said.message


def test_a_score_out_of_the_tasks_range(tmp_path):
    lines = [f"{i}\tone {i}\ttwo\t{i % 6}.0" for i in range(30)]
    folder = tmp_path / "STS-B"
    folder.mkdir()
    for name in ("train", "dev"):
        text = "index\tsentence1\tsentence2\tscore\n" + "\n".join(lines)
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    assert load_task("stsb", tmp_path)[0] is TASKS["stsb"]
    (folder / "dev.tsv").write_text(text + "\n30\tone\ttwo\t7\n", encoding="utf-8")
    with pytest.raises(LimbeckError, match=r"1 of 31 scores are outside 0 to 5.*row 31: 7"):
        load_task("stsb", tmp_path)


def test_a_column_twice(tmp_path):
    path = csv_of(tmp_path / "d.csv", ["a", "b"] * 20)
    assert "2 text columns are named: q, q" in refusal(path, text_columns=["q", "q"])
    folder = tmp_path / "SST-2"
    folder.mkdir()
    for name in ("train", "dev"):
        text = "sentence\tlabel\tlabel\n" + "fine\t1\t0\nbad\t0\t1\n" * 9
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(LimbeckError, match="two columns have the name 'label'"):
        load_task("sst2", tmp_path)
    (tmp_path / "d.jsonl").write_text('{"q": "a", "y": 1, "y": 0}\n' * 9)
    assert "line 1: not JSON: the key 'y' occurs twice" in refusal(tmp_path / "d.jsonl")
    table = pa.table([["a", "b"] * 9, [0, 1] * 9, [1, 0] * 9], names=["q", "y", "y"])
    parquet.write_table(table, tmp_path / "d.parquet")
    assert "two columns have one name" in refusal(tmp_path / "d.parquet")


@pytest.mark.parametrize("name", ["p.csv", "p.tsv", "p.jsonl", "p.parquet"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    assert "is a pipe" in refusal(tmp_path / name)


@pytest.mark.parametrize(
    "kind", ["tokens", "spans", "masked", "embedding", "pair-score", "multi-label"]
)
def test_a_pipe_is_not_waited_for_by_any_kind(tmp_path, kind):
    for suffix in ("txt", "json", "csv"):
        os.mkfifo(tmp_path / f"p.{suffix}")
        with pytest.raises(LimbeckError):
            load_task(None, tmp_path / f"p.{suffix}", kind=kind)


def test_a_pipe_in_a_folder_of_released_files(tmp_path):
    (tmp_path / "RTE").mkdir()
    os.mkfifo(tmp_path / "RTE" / "train.tsv")
    with pytest.raises(LimbeckError, match="is a pipe"):
        load_task("rte", tmp_path)


def test_fields_longer_than_the_csv_module_likes(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("q,y\n" + "".join(f"{'word ' * 30_000}{i},{i % 2}\n" for i in range(6)))
    _, splits = load_task(None, path, **COLUMNS)
    assert all(len(row) > 131_072 for row in splits["train"]["sentence"][:])


@pytest.mark.parametrize(
    "text", ['{"q": "\\ud800", "y": 1}', '{"q": "a\\u0000b", "y": 1}', "[" * 9**5]
)
def test_json_that_no_column_can_hold(tmp_path, text):
    (tmp_path / "d.jsonl").write_text(text + "\n")
    assert "line 1" in refusal(tmp_path / "d.jsonl")


def test_zero_characters_and_the_home_of_no_one(tmp_path):
    (tmp_path / "d.csv").write_bytes(b"q,y\na,1\nb\0c,0\n" * 3)
    assert "zero characters" in refusal(tmp_path / "d.csv")
    assert "no such file" in refusal("~no-one-of-that-name/d.csv")


@pytest.mark.parametrize("start", ["0", 2**70, 99])
def test_answers_that_are_nowhere(tmp_path, start):
    answer = {"text": "a", "answer_start": start}
    asked = {"question": "q", "answers": [answer]}
    content = {"data": [{"paragraphs": [{"context": "a b", "qas": [asked]}]}] * 20}
    (tmp_path / "d.json").write_text(json.dumps(content))
    with pytest.raises(LimbeckError, match="an answer_start is no place"):
        load_task("own", tmp_path / "d.json", kind="spans")


def test_columns_of_json_lines_stand_in_the_order_of_the_file(tmp_path):
    names = [f"column{i}" for i in range(20)]
    (tmp_path / "d.jsonl").write_text(json.dumps(dict.fromkeys(names, 1)) + "\n")
    assert list(read_table(tmp_path / "d.jsonl").columns) == names


def test_columns_keep_every_value_in_its_place():
    values = ["x"] * 9 + [None, 3, "y"] + [f"t{i}" for i in range(9)]
    column = ArrowColumn(values)
    assert (list(column), len(column), column.text) == (values, len(values), None)
    assert column[10] == 3 and column[20] == values[-1]
    text = ArrowColumn()
    for _ in range(2):
        text.extend(values[-9:])
    assert text.text.to_pylist() == text.shared() == values[-9:] * 2
    mixed = ArrowColumn()
    mixed.extend(pa.array(["a", None]))
    mixed.extend(["b"])
    assert list(mixed) == mixed.shared() == ["a", None, "b"] and mixed.text is None
    assert mixed.text_or_gaps.to_pylist() == ["a", None, "b"]
