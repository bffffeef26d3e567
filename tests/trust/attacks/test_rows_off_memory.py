"""Text of a large file lies on disk while a run uses it: the same rows, little memory, and no file that stays."""

from __future__ import annotations

import errno
import json
import pickle
import random
from pathlib import Path

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet

from limbeck.data import Conditions, load_task, table

ROWS = 3000


@pytest.fixture
def small(monkeypatch, tmp_path) -> Path:
    """What counts as large is a page of text; the folder that files are made in."""
    monkeypatch.setattr(table, "LARGE", 4096)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def rows() -> list[dict[str, str]]:
    chance = random.Random(1)
    words = ["good", "bad", 'a "film"', "Ärger", "null", "one, two", "x" * 200]
    # Each text once: rows of equal texts are not divided.
    return [
        {"text": " ".join([*chance.choices(words, k=5), str(number)]), "label": "ab"[number % 2]}
        for number in range(ROWS)
    ]


def write(folder: Path, suffix: str) -> Path:
    path = folder / f"rows{suffix}"
    if suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows()), path)
    elif suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows()))
    elif suffix == ".tsv":
        lines = [f"{row['text']}\t{row['label']}" for row in rows()]
        path.write_text("\n".join(["text\tlabel", *lines]) + "\n")
    else:
        lines = ['"{}",{}'.format(row["text"].replace('"', '""'), row["label"]) for row in rows()]
        path.write_text("\n".join(["text,label", *lines]) + "\n")
    return path


def load(path: Path) -> datasets.DatasetDict:
    return load_task(None, path, text_columns=["text"], label_column="label")[1]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_the_rows_are_those_of_the_file(tmp_path, small, suffix):
    before = pa.total_allocated_bytes()
    splits = load(write(tmp_path, suffix))
    # Class ids, numbers of rows and offsets; and of the text no more than may stay in memory.
    held = pa.total_allocated_bytes() - before
    text = sum(len(row["text"]) for row in rows())
    assert held < text / 2
    wanted = [(row["text"], row["label"]) for row in rows()]
    train, dev, test = (
        [(row["sentence"], "ab"[row["label"]]) for row in splits[name]]
        for name in ("train", "dev", "test")
    )
    assert sorted(train + dev + test) == sorted(wanted)
    assert len(dev) == len(test) == ROWS / 10
    for split in (train, dev, test):  # each in the order of the file
        rest = iter(wanted)
        assert all(any(row == other for other in rest) for row in split)
    assert list(small.iterdir()) == []


def test_a_draw_of_few_rows_is_the_same(tmp_path, small, monkeypatch):
    path = write(tmp_path, ".csv")

    def few() -> list[dict]:
        task, splits = load_task(None, path, text_columns=["text"], label_column="label")
        return Conditions(train_rows=7).apply(splits["train"], task).to_list()

    mapped = few()
    monkeypatch.setattr(table, "LARGE", 1 << 30)
    assert few() == mapped


def test_a_process_of_its_own_is_given_the_rows(tmp_path, small):
    split = load(write(tmp_path, ".csv"))["dev"]
    assert pickle.loads(pickle.dumps(split)).to_list() == split.to_list()


def test_rows_are_known_by_their_content(tmp_path, small):
    path = write(tmp_path, ".csv")
    first = load(path)["train"]._fingerprint
    assert load(path)["train"]._fingerprint == first
    path.write_text(path.read_text().replace("Ärger", "Ärgen", 1))
    assert load(path)["train"]._fingerprint != first


def test_on_a_full_disk_memory_holds_them(tmp_path, small, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(table.pa.ipc, "new_file", full)
    assert len(load(write(tmp_path, ".csv"))["train"]) > 2000
    assert list(small.iterdir()) == []


def test_without_a_folder_to_write_to_memory_holds_them(tmp_path, small):
    small.write_text("no folder")
    assert len(load(write(tmp_path, ".csv"))["train"]) > 2000
