"""Parquet files larger than what may be held in memory are read through mapped files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from limbeck.data import files
from limbeck.data import table as tables
from limbeck.data.table import ArrowColumn, read_table

_ROWS, _LIMIT = 30_000, 10 * 2**20


@pytest.fixture
def little_memory(monkeypatch, tmp_path):
    """A machine with little memory, whose files of rows lie in a folder of the test."""
    monkeypatch.setattr(tables, "LARGE", 2**20)
    monkeypatch.setattr(files, "_BYTES_AT_ONCE", 2**20)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def large_table():
    texts = [f"{number} {'word ' * 100}" for number in range(_ROWS)]
    vectors = np.arange(_ROWS * 64, dtype=np.float32).reshape(_ROWS, 64)
    labels = [None if number % 7 == 0 else number for number in range(_ROWS)]
    return pa.table(
        {
            "text": texts,
            "vector": pa.FixedSizeListArray.from_arrays(vectors.reshape(-1), 64),
            "label": labels,
            "source": pa.array(["one", "other"] * (_ROWS // 2)).dictionary_encode(),
        }
    )


def test_a_parquet_file_larger_than_memory_is_read_as_it_is(tmp_path, little_memory):
    written = large_table()
    assert written.nbytes > 2 * _LIMIT
    parquet.write_table(written, tmp_path / "rows.parquet", row_group_size=2500)
    expected = [row["label"] for row in written.select(["label"]).to_pylist()]
    before = pa.total_allocated_bytes()
    table = read_table(tmp_path / "rows.parquet")
    assert pa.total_allocated_bytes() - before < _LIMIT
    assert table.columns["text"].text.equals(written["text"].cast(pa.large_string()))
    assert list(table.columns["label"]) == expected
    assert table.columns["source"].shared() == ["one", "other"] * (_ROWS // 2)
    for row in (0, 2499, 2500, _ROWS - 1):
        assert table.columns["vector"][row] == written["vector"][row].as_py()


def test_where_no_file_can_be_written_rows_stay_in_memory(tmp_path, little_memory, monkeypatch):
    parquet.write_table(large_table(), tmp_path / "rows.parquet")
    (tmp_path / "a file").write_text("")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "a file")
    table = read_table(tmp_path / "rows.parquet")
    assert table.columns["text"].text.equals(large_table()["text"].cast(pa.large_string()))


def test_a_column_keeps_what_is_no_text_in_its_order(monkeypatch):
    """Pieces of several types, on both sides of what is put into a file."""
    monkeypatch.setattr(tables, "LARGE", 64)
    found = ArrowColumn(["a", None, 3])
    for piece in (["text", "x" * 100], [1.5, None], ["more", None], [[1], [2, 3]]):
        found.extend(pa.array(piece))
    values = ["a", None, 3, "text", "x" * 100, 1.5, None, "more", None, [1], [2, 3]]
    assert list(found) == found.shared() == [found[row] for row in range(len(found))] == values
    assert found.text is None
