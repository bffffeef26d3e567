"""The dev rows fall into two halves that share nothing, and samples keep rows with labels first."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import tiny_compression as tiny
from datasets import Dataset
from transformers import BertForTokenClassification

from limbeck.compressing import compress
from limbeck.compressing.rows import rows_of
from limbeck.data import load_task
from limbeck.data.text_rows import read_text_rows
from limbeck.support.errors import LimbeckError


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> str:
    return str(tiny.write_teacher(tmp_path_factory.mktemp("teacher")))


def read(path: str) -> list[tuple[str, str]]:
    """Texts and names of labels, as a run reads the file."""
    task, splits = load_task(None, path, for_training=False)
    rows = splits["dev"]
    return [
        (text, task.labels[label])
        for text, label in zip(rows["sentence"], rows["label"], strict=True)
    ]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet", "tsv"])
def test_a_dev_file_is_halved_in_its_own_form(teacher, tmp_path, form):
    rows = tiny.texts(41, seed=3)
    dev, columns = (
        tmp_path / f"dev.{form}",
        dict(zip(("text", "label"), zip(*rows, strict=True), strict=True)),
    )
    if form == "parquet":
        Dataset.from_dict(columns).to_parquet(dev)
    elif form == "jsonl":
        dev.write_text("".join(json.dumps({"text": a, "label": b}) + "\n" for a, b in rows))
    else:
        with dev.open("w", newline="") as stream:
            csv.writer(stream, delimiter="\t" if form == "tsv" else ",").writerows(
                [("text", "label"), *rows]
            )
    train = tiny.write_rows(tmp_path / "train.csv", 60)
    found = rows_of(teacher, {"data": str(train), "dev": str(dev)}, tmp_path / "out")
    halves = [read(found.settings[split]) for split in ("dev", "test")]
    assert min(map(len, halves)) > 10
    assert sorted(halves[0] + halves[1]) == sorted(rows)
    assert found.settings["data"] == str(train)


def test_one_file_becomes_train_and_two_halves(teacher, tmp_path):
    data = tiny.write_rows(tmp_path / "rows.csv", 300)
    found = rows_of(teacher, {"data": str(data)}, tmp_path / "out")
    parts = [read(found.settings[name]) for name in ("data", "dev", "test")]
    assert len(parts[0]) == found.labelled
    texts = [text for part in parts for text, _ in part]
    assert len({*texts}) == len(texts)
    right = dict(tiny.texts(300))
    assert all(right[text] == label for part in parts for text, label in part)


def test_samples_take_labelled_rows_first(teacher, tmp_path):
    train = tiny.write_rows(tmp_path / "train.csv", 60)
    dev = tiny.write_rows(tmp_path / "dev.csv", 40, seed=9)
    more = tmp_path / "more.txt"
    more.write_text(
        "\n".join(f"more {text} {at}" for at, (text, _) in enumerate(tiny.texts(200, seed=8)))
    )
    given = {"data": str(train), "dev": str(dev), "unlabelled": [str(more)]}
    found = rows_of(teacher, given, tmp_path / "out")
    assert (found.labelled, found.unlabelled) == (60, 200)
    some = found.sampled(100)
    assert "train_rows" not in some
    sample = read_text_rows(some["unlabelled"][0]).columns["sentence"].to_pylist()
    whole = read_text_rows(str(more)).columns["sentence"].to_pylist()
    assert len({*sample}) == 40 and {*sample} <= {*whole}
    few = found.sampled(50)
    assert few["train_rows"] == 50 and few["unlabelled"] == []
    assert found.sampled(260) == dict(found.settings)


def test_fewer_rows_keep_all_labels_and_their_samples_are_among_them(teacher, tmp_path):
    train = tiny.write_rows(tmp_path / "train.csv", 60)
    dev = tiny.write_rows(tmp_path / "dev.csv", 40, seed=9)
    more = tmp_path / "more.txt"
    more.write_text("\n".join(f"more {at} {text}" for at, (text, _) in enumerate(tiny.texts(200))))
    given = {"data": str(train), "dev": str(dev), "unlabelled": [str(more)]}
    whole = rows_of(teacher, given, tmp_path / "out")
    assert whole.limited(260) is whole
    some = whole.limited(150)
    assert (some.labelled, some.unlabelled, some.count) == (60, 90, 150)

    def texts(settings) -> set[str]:
        return {*read_text_rows(settings["unlabelled"][0]).columns["sentence"].to_pylist()}

    assert len(texts(some.settings)) == 90
    # Trials then read what the teacher was asked about.
    assert len(texts(some.sampled(100))) == 40 and texts(some.sampled(100)) <= texts(some.settings)
    assert whole.limited(10).count == 60


def test_rows_of_tags_are_read(tmp_path):
    tagger = tiny.write_teacher(tmp_path / "tagger", head=BertForTokenClassification)
    for name, count in (("train", 30), ("dev", 20)):
        rows = [
            {"words": text.split(), "tags": ["O"] * len(text.split())}
            for text, _ in tiny.texts(count, seed=count)
        ]
        rows[0]["tags"][0] = "B-A"
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {
        "data": str(tmp_path / "train.jsonl"),
        "dev": str(tmp_path / "dev.jsonl"),
        "kind": "tokens",
    }
    columns = {"text_columns": ["words"], "label_column": "tags"}
    found = rows_of(str(tagger), given | columns, tmp_path / "out")
    assert (found.labelled, found.unlabelled) == (30, 0)
    assert compress._usual_methods(found) == ("kd",)
    halves = [Path(found.settings[name]).read_text().splitlines() for name in ("dev", "test")]
    assert sorted(halves[0] + halves[1]) == sorted(
        (tmp_path / "dev.jsonl").read_text().splitlines()
    )


def test_settings_that_a_compression_makes_are_refused_together(teacher, tmp_path):
    with pytest.raises(LimbeckError) as caught:
        rows_of(
            teacher, {"data": "x.csv", "student.layers": 2, "lr": 1e-4, "test": "t.csv"}, tmp_path
        )
    assert [one.message.partition(":")[0] for one in caught.value.problems] == [
        "test",
        "student",
        "lr",
    ]
