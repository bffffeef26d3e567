"""What a label column of a user's own is taken for is said, with the reason and how to say otherwise."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from limbeck.data import Labelling, load_task
from limbeck.support.errors import LimbeckError

COLUMNS = {"text_columns": ["q"], "label_column": "y"}
PROBABILITIES = ["0.12", "0.97", "0.5", "0.03"]


def written(folder: Path, labels: list[str]) -> Path:
    rows = [f"text {number},{labels[number % len(labels)]}" for number in range(40)]
    path = folder / "own.csv"
    path.write_text("q,y\n" + "\n".join(rows) + "\n")
    return path


def load(path: Path, **known):
    return load_task(None, path, **COLUMNS, labelling=Labelling(**known))


@pytest.mark.parametrize(
    ("labels", "known", "names", "why"),
    [
        (["0.0", "1.0"], {}, ("0", "1"), "as a table with gaps writes classes"),
        (["1.0", "2.0", "3.0"], {}, (), "written with a decimal point"),
        (["1.0", "2.0", "3.0"], {"holds": "classes"}, ("1", "2", "3"), None),
        (["0.0", "1.0", "2.0"], {"teacher": ("a", "b", "c")}, ("0", "1", "2"), "teacher has 3"),
        (["0.0", "1.0"], {"holds": "numbers"}, (), None),
        (["0.0", "1.0"], {"teacher": ("LABEL_0",)}, (), None),
        (["1", "2", "3"], {}, ("1", "2", "3"), None),
        (["1", "2", "3"], {"holds": "numbers"}, (), None),
        (["1", "2", "3"], {"teacher": ("LABEL_0",)}, (), None),
        (PROBABILITIES, {}, (), "they have fractions"),
    ],
)
def test_what_numbers_are_taken_for(tmp_path, caplog, labels, known, names, why):
    with caplog.at_level(logging.WARNING, "limbeck"):
        task, splits = load(written(tmp_path, labels), **known)
    assert task.labels == names and task.regression == (not names)
    values = sorted({float(label) for label in labels})
    found = set(splits["train"]["label"][:])
    expected = range(len(values)) if names else values
    assert sorted(found) == pytest.approx(list(expected))  # numbers are stored in float32
    # What could be meant otherwise is logged at once; the rest is for pre-flight to show.
    assert (why in caplog.text) if why else (caplog.text == "" and task.said.severity == "note")
    said = caplog.text or f"{task.said}"
    assert "'y'" in said and ("labels=" in said or "write the class" in said)


def test_numbers_with_gaps_from_a_table_of_another_library(tmp_path):
    """Floats, as pandas stores whole numbers beside a gap."""
    table = pa.table({"q": [f"t{n}" for n in range(20)], "y": [float(n % 2) for n in range(20)]})
    pa.parquet.write_table(table, tmp_path / "own.parquet")
    task, splits = load(tmp_path / "own.parquet")
    assert task.labels == ("0", "1")
    assert set(splits["train"]["label"][:]) == {0, 1}


def test_probabilities_are_named(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, "limbeck"):
        load(written(tmp_path, PROBABILITIES))
    assert "probabilities" in caplog.text and "give that model as teacher" in caplog.text


@pytest.mark.parametrize(
    ("labels", "known", "message"),
    [
        (["a", "b"], {"holds": "numbers"}, "labels: numbers, but label column 'y' holds 'a'"),
        (PROBABILITIES, {"holds": "classes"}, "labels: classes, but label column 'y' holds 0.12"),
        (["a", "b"], {"classes": ("a", "b"), "holds": "numbers"}, "numbers have no classes"),
    ],
)
def test_what_cannot_be_meant(tmp_path, labels, known, message):
    with pytest.raises(LimbeckError, match=message):
        load(written(tmp_path, labels), **known)


@pytest.mark.parametrize("word", ["NA", "None", "null", "n/a", "?"])
def test_words_for_a_gap_are_a_class_that_is_said(tmp_path, word):
    task, _ = load(written(tmp_path, ["good", "bad", "good", word]))
    assert sorted(task.labels) == sorted(["bad", "good", word])
    assert f"3 classes, {', '.join(task.labels)}" in task.said.message
    assert task.said.severity == "warning"
    assert f"{word} counts as a class" in task.said.message
    named, _ = load(written(tmp_path, ["good", "bad", "good", word]), classes=task.labels)
    assert named.said.severity == "note"


def test_a_header_among_the_rows_is_no_class(tmp_path):
    path = written(tmp_path, ["good", "bad"])
    path.write_text(path.read_text() * 2)
    with pytest.raises(LimbeckError, match=r"1 of 81 rows have the label 'y'.*first is row 41"):
        load(path)
