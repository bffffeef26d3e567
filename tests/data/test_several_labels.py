"""Several labels a row from a user's files: the three forms, and everything that can be wrong with them."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from limbeck.data import Division, Labelling, load_task, rows_fingerprint
from limbeck.support.errors import LimbeckError
from limbeck.tasks.abstract_type import labelled_rows

ROWS = [
    ("one", ["b", "a"]), ("two", []), ("three", ["c"]), ("four", ["a"]), ("five", ["a", "c"]),
    ("six", ["b"]), ("seven", ["a", "b", "c"]), ("eight", ["b"]),
]  # fmt: skip
EXPECTED = [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 1, 0]]


def load(path, label="tags", **changes):
    given = {
        "kind": "multi-label",
        "text_columns": ["text"],
        "label_column": label,
        "for_training": False,
    }
    return load_task("own", path, **(given | changes))


def jsonl(path, rows, column="tags"):
    path.write_text("".join(json.dumps({"text": t, column: own}) + "\n" for t, own in rows))
    return path


def csv(path, cells):
    lines = [f'{text},"{cell}"' for text, cell in cells]
    path.write_text("\n".join(["text,tags", *lines]) + "\n")
    return path


def same(task, splits):
    assert task.labels == ("a", "b", "c")
    assert splits["dev"]["label"][:] == EXPECTED
    return rows_fingerprint(task, splits["dev"])


def test_three_forms_are_the_same_rows(tmp_path):
    lists = jsonl(tmp_path / "lists.jsonl", ROWS)
    table = pa.table({"text": [t for t, _ in ROWS], "tags": [own for _, own in ROWS]})
    parquet.write_table(table, tmp_path / "lists.parquet")
    found = {same(*load(lists)), same(*load(tmp_path / "lists.parquet"))}
    for separator in (",", ";", "|"):
        file = csv(
            tmp_path / f"{ord(separator)}.csv", [(t, separator.join(own)) for t, own in ROWS]
        )
        found.add(same(*load(file)))
    file = csv(tmp_path / "own.csv", [(t, " / ".join(own)) for t, own in ROWS])
    found.add(same(*load(file, labelling=Labelling(separator="/"))))
    head = "text,a,b,c\n"
    lines = [
        f"{text},{','.join(map(str, row))}" for (text, _), row in zip(ROWS, EXPECTED, strict=True)
    ]
    (tmp_path / "ticks.csv").write_text(head + "\n".join(lines))
    ticks = Labelling(classes=("a", "b", "c"))
    found.add(same(*load(tmp_path / "ticks.csv", None, labelling=ticks)))
    words = [
        f"{text},{','.join(str(bool(one)) for one in row)}"
        for (text, _), row in zip(ROWS, EXPECTED, strict=True)
    ]
    (tmp_path / "words.csv").write_text(head + "\n".join(words))
    found.add(same(*load(tmp_path / "words.csv", None, labelling=ticks)))
    named = Labelling(teacher=("a", "b", "c"))
    found.add(same(*load(tmp_path / "ticks.csv", None, labelling=named)))
    assert len(found) == 1


def test_a_dev_file_of_its_own(tmp_path):
    train, dev = jsonl(tmp_path / "train.jsonl", ROWS), jsonl(tmp_path / "other.jsonl", ROWS[:3])
    _, splits = load(train, division=Division(dev=dev), for_training=True)
    assert splits["train"]["label"][:] == EXPECTED and splits["dev"]["label"][:] == EXPECTED[:3]


def test_the_order_is_the_teachers_or_the_users(tmp_path):
    file = jsonl(tmp_path / "rows.jsonl", ROWS)
    task, splits = load(file, labelling=Labelling(teacher=("C", "rare", "a", "b")))
    assert task.labels == ("c", "rare", "a", "b")
    assert splits["dev"]["label"][0] == [0, 0, 1, 1]
    task, _ = load(file, labelling=Labelling(classes=("b", "c", "a")))
    assert task.labels == ("b", "c", "a")
    # The same rows in another order of the classes are the same rows.
    other = rows_fingerprint(*_dev(load(file)))
    assert (
        rows_fingerprint(*_dev(load(file, labelling=Labelling(classes=("b", "c", "a"))))) == other
    )


def _dev(loaded):
    return loaded[0], loaded[1]["dev"]


def test_numbers_are_ids_of_named_classes(tmp_path):
    rows = [(t, [ord(name) - ord("a") for name in own]) for t, own in ROWS]
    file = jsonl(tmp_path / "rows.jsonl", rows)
    same(*load(file, labelling=Labelling(teacher=("a", "b", "c"))))
    task, splits = load(file)
    assert task.labels == ("0", "1", "2") and splits["dev"]["label"][:] == EXPECTED
    with pytest.raises(LimbeckError, match="holds 2"):
        load(file, labelling=Labelling(classes=("a", "b")))


def test_lists_of_0_and_1_are_in_the_order_of_named_classes(tmp_path):
    rows = [(t, row) for (t, _), row in zip(ROWS, EXPECTED, strict=True)]
    file = jsonl(tmp_path / "rows.jsonl", rows)
    same(*load(file, labelling=Labelling(classes=("a", "b", "c"))))
    same(*load(file, labelling=Labelling(teacher=("a", "b", "c"))))
    for names in ((), ("a", "b")):
        with pytest.raises(LimbeckError, match="lists of 3 times 0 or 1, a class each"):
            load(file, labelling=Labelling(classes=names))


def test_rows_without_labels_stay_in_train(tmp_path):
    rows = [(t, None if at % 3 == 2 else own) for at, (t, own) in enumerate(ROWS * 3)]
    rows = [(f"{t} {at}", own) for at, (t, own) in enumerate(rows)]
    _, splits = load(jsonl(tmp_path / "rows.jsonl", rows), for_training=True)
    known = labelled_rows(splits["train"]["label"][:])
    assert (~known).sum() == 8 and labelled_rows(splits["dev"]["label"][:]).all()
    assert len(splits["dev"]) == 2


def test_a_label_that_stands_twice_counts_once(tmp_path):
    rows = [(t, own + own[:1]) for t, own in ROWS]
    same(*load(jsonl(tmp_path / "rows.jsonl", rows)))


def test_what_was_understood_is_said(tmp_path):
    task, _ = load(jsonl(tmp_path / "rows.jsonl", ROWS))
    assert task.said.message == (
        "label column 'tags': 3 classes, a, b, c; 1.4 a row on average, 1 of 8 rows of no class"
    )


REFUSED = {
    "two separators": ([("x", "a,b"), ("y", "c|a"), ("z", "b"), ("u", "c")], "',' and '|'"),
    "a list as text": ([("x", "['a', 'b']"), ("y", "['c']")], "a list as text"),
    "an empty name": ([("x", "a,,b"), ("y", "a")], "one of its names is empty"),
    "no class at all": ([("x", ""), ("y", "")], "none of its rows is of any class"),
    "one class": ([("x", "a"), ("y", "a")], "two classes or more"),
    "one class in two spellings": (
        [("x", "caf\u00e9,b"), ("y", "cafe\u0301"), ("z", "b")],
        "several ways",
    ),
    "too many": ([(str(n), f"c{n}") for n in range(9)], "label_separator is the text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_cells_of_text_that_are_refused(name, tmp_path):
    cells, said = REFUSED[name]
    with pytest.raises(LimbeckError) as error:
        load(csv(tmp_path / "rows.csv", cells))
    assert said in str(error.value)


LISTS = {
    "a number for a list": ([("x", 3), ("y", 1)], "expected a list of classes"),
    "a list of lists": ([("x", [["a"]]), ("y", ["b"])], "holds ['a']"),
    "a half": ([("x", [0.5]), ("y", ["b"])], "holds 0.5"),
    "spaces": ([("x", ["a "]), ("y", ["b"])], "spaces at its ends"),
    "nothing in dev": ([("x", ["a"]), ("y", ["b"]), ("z", None)], "row 3 has no labels"),
    "a class train has not": (
        [("x", ["a"]), ("y", ["d"]), ("z", ["b"])],
        "the class 'd', which train has not",
    ),
    "a number beside names": (
        [("x", ["a"]), ("y", ["b", 2]), ("z", [])],
        "names ('b') and numbers (2)",
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_that_are_refused(name, tmp_path):
    rows, said = LISTS[name]
    (tmp_path / "own").mkdir()
    jsonl(tmp_path / "own" / "train.jsonl", ROWS)
    jsonl(tmp_path / "own" / "dev.jsonl", rows)
    with pytest.raises(LimbeckError) as error:
        load(tmp_path / "own", for_training=True)
    assert said in str(error.value)


def test_columns_that_are_refused(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("text,a,b\nx,1,0\ny,2,1\n")
    classes = Labelling(classes=("a", "b"))
    with pytest.raises(LimbeckError, match="row 2: a is '2'"):
        load(file, None, labelling=classes)
    with pytest.raises(LimbeckError, match="no column 'c'"):
        load(file, None, labelling=Labelling(classes=("a", "c")))
    with pytest.raises(LimbeckError, match="no label column is named"):
        load(file, None)
    with pytest.raises(LimbeckError, match="has no label column 'tags'"):
        load(file)
    with pytest.raises(LimbeckError, match="numbers, and kind multi-label has classes"):
        load(file, None, labelling=Labelling(holds="numbers"))
    file.write_text("text,a,b\nx,1,\ny,0,1\n")
    with pytest.raises(LimbeckError, match="row 1: b is ''"):
        load(file, None, labelling=classes)


def test_lists_without_the_kind_say_which_it_is(tmp_path):
    with pytest.raises(LimbeckError, match="set kind=multi-label"):
        load(jsonl(tmp_path / "rows.jsonl", ROWS), kind=None)


def test_a_known_task_has_one_class_a_row(tmp_path):
    with pytest.raises(LimbeckError, match="is of kind sentence, not multi-label"):
        load_task(
            "sst2", jsonl(tmp_path / "rows.jsonl", ROWS), kind="multi-label", text_columns=["text"]
        )


def test_labels_as_arrays_of_numbers(tmp_path):
    _, splits = load(jsonl(tmp_path / "rows.jsonl", ROWS))
    labels = splits["dev"].with_format("numpy")["label"][:]
    assert labels.dtype == np.float32 and labels.shape == (8, 3)
