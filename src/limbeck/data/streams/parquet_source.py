"""Rows of a Parquet file. Part of `limbeck.data.streams`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from limbeck.data.endings import parquet_file
from limbeck.data.streams.row_source import RowSource
from limbeck.data.streams.taken_rows import ArrowRows, TakenRows
from limbeck.data.tables import check_text, readable, unique_names


class ParquetSource(RowSource):
    """A Parquet file, a few rows at a time."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        with readable(self.name):
            self._file = parquet_file(path)
        names = self._file.schema_arrow.names
        self.columns = tuple(unique_names(path, names))
        self.size = max(path.stat().st_size, 1)
        self._total = max(self._file.metadata.num_rows, 1)
        self._read = 0
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._left: pa.Table | None = None

    def take(self, count: int) -> TakenRows:
        """The next rows."""
        with readable(self.name):
            if self._batches is None:
                self._batches = self._file.iter_batches(max(min(count, 65_536), 1))
                self._left = self._file.schema_arrow.empty_table()
            assert self._left is not None
            parts, rows = [self._left], len(self._left)
            while rows < count:
                batch = next(self._batches, None)
                if batch is None:
                    break
                parts.append(pa.Table.from_batches([batch]))
                rows += len(batch)
        whole = pa.concat_tables(parts)
        for name in self.columns:
            check_text(Path(self.name), name, whole.column(name))
        taken, self._left = whole.slice(0, count), whole.slice(count)
        self._read += len(taken)
        assert self.size is not None
        self.position = self.size * self._read // self._total
        return ArrowRows(taken)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
