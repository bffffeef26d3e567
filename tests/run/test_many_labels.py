"""Labelling holds some rows at a time, never all their texts: seen by what is allocated meanwhile."""

from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from limbeck import label
from limbeck.data.row_ids import row_ids
from limbeck.data.text_rows import TextRows
from limbeck.labelling import plain_table
from limbeck.labelling.fill import LabelWork, measure
from limbeck.labelling.plain_table import write_plain_labels
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.scored_shard import ShardContent
from limbeck.support.errors import LimbeckError

COUNT, CHUNK = 2000, 200
MIB = 2**20


class Tens:
    """Whose outputs tell which row a text is: its number, and the digits of it."""

    name, kind, classes, outputs, batch_size = (
        "tens",
        "sentence",
        tuple("abcdefghij"),
        ("logits",),
        4,
    )

    def __init__(self) -> None:
        self.seen: list[str] = []

    def fingerprint(self):
        return {}

    def score(self, rows):
        self.seen += [row["sentence"] for row in rows]
        numbers = [int(row["sentence"].split()[0]) for row in rows]
        return {"logits": np.eye(10, dtype=np.float32)[[n % 10 for n in numbers]] * 3}


def texts() -> list[str]:
    """About two KiB each, of every length around it; the last hundred are there before."""
    found = [f"{number} " + "é" * (700 + number * 7 % 600) for number in range(COUNT)]
    return [*found, *found[:100]]


@pytest.fixture(scope="module")
def rows() -> TextRows:
    lines = texts()
    column = pa.chunked_array(
        [pa.array(lines[at : at + CHUNK], pa.large_string()) for at in range(0, len(lines), CHUNK)]
    )
    return TextRows({"sentence": column}, ("lines",), ("line",))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    (folder / "rows.txt").write_text("\n".join(texts()), encoding="utf-8")
    return label(Tens(), folder / "rows.txt", out=folder / "store", batch_size=512, shard_rows=256)


@contextmanager
def allocated() -> Iterator[dict[str, float]]:
    """The most MiB that Python's objects, and Arrow's buffers, take at a time inside."""
    most: dict[str, float] = {}
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield most
        most |= {"python": tracemalloc.get_traced_memory()[1] / MIB}
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)
    most |= {"arrow": (pool.max_memory() or 0) / MIB}


def test_the_measured_rows_are_of_mean_length_and_take_no_copy_of_all_texts(rows):
    labeller = Tens()
    work = LabelWork(StoreFiles("nowhere"), rows, labeller, ShardContent(("logits",), 4, (), False))
    assert len(work) == COUNT  # the ids are there before
    with allocated() as most:
        estimate = measure(work)
    assert sum(most.values()) < 1, f"{most} of {rows.columns['sentence'].nbytes / MIB} MiB"
    assert estimate.bytes == 40 + 8
    mean = np.mean([len(text) for text in dict.fromkeys(texts())])
    lengths = [len(text) for text in labeller.seen]
    assert len(lengths) == 32  # sixteen rows, which are quick, and so measured twice
    np.testing.assert_allclose(np.mean(lengths), mean, rtol=0.1)


def test_of_fewer_rows_than_a_batch_all_are_measured(rows):
    few = TextRows({"sentence": rows.columns["sentence"].slice(0, 3)}, (), ("line",))
    labeller = Tens()
    content = ShardContent(("logits",), 8, ("line",), False)
    measure(LabelWork(StoreFiles("nowhere"), few, labeller, content))
    assert sorted(labeller.seen) == sorted(texts()[:3] * 2)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_table_is_written_in_pieces(rows, store, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(plain_table, "_PIECE", 100)
    path = tmp_path / f"labels.{kind}"
    assert len(rows.ids) == COUNT + 100
    with allocated() as most:
        write_plain_labels(path, store, rows)
    assert path.stat().st_size > (0.15 if kind == "parquet" else 3) * MIB
    assert sum(most.values()) < 2.5, most
    if kind == "csv":
        with path.open(newline="", encoding="utf-8") as stream:
            found = [*csv.DictReader(stream)]
    elif kind == "jsonl":
        found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    else:
        found = parquet.read_table(path).to_pylist()
    lines = texts()
    assert [row["line"] for row in found] == lines
    assert [row["label"] for row in found] == ["abcdefghij"[int(t.split()[0]) % 10] for t in lines]
    sure = np.exp(3) / (np.exp(3) + 9)
    np.testing.assert_allclose([float(row["confidence"]) for row in found], sure, rtol=1e-5)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_table_is_there_whole_or_as_it_was(rows, store, tmp_path, kind, monkeypatch):
    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    path = tmp_path / f"labels.{kind}"
    path.write_text("as it was")
    with pytest.raises(KeyboardInterrupt):
        write_plain_labels(path, store, rows)
    assert path.read_text() == "as it was" and [*tmp_path.iterdir()] == [path]


def test_rows_that_the_store_lacks_are_said_before_anything_is_written(store, tmp_path):
    column = pa.chunked_array([pa.array(["7 seven", "8 eight"], pa.large_string())])
    other = TextRows({"sentence": column}, (), ("line",))
    assert other.ids.tolist() == row_ids([["7 seven", "8 eight"]]).tolist()
    with pytest.raises(LimbeckError, match="2 of 2 rows are not stored"):
        write_plain_labels(tmp_path / "labels.csv", store, other)
    assert not [*tmp_path.iterdir()]
