"""Stored outputs brought elsewhere as a store of Parquet shards, without a bit changed.

Part of `limbeck.teachers.outputs`. What a training keeps for itself, mapped into memory and found by its rows' places,
becomes a store whose rows are found by their texts. A copy that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from limbeck.support.errors import LimbeckError
from limbeck.teachers.outputs.columns import INDEX, ROW, OutputColumn
from limbeck.teachers.outputs.entry_key import digest_of_ids
from limbeck.teachers.outputs.output_store import OutputStore
from limbeck.teachers.outputs.parquet_shards import (
    rows_of_shard,
    shaped_values,
    shard_name,
    shard_table,
    write_shard,
)
from limbeck.teachers.outputs.scored_shard import labels_of
from limbeck.teachers.outputs.store_files import StoreFiles
from limbeck.teachers.outputs.store_manifest import MISSING, ShardRecord, StoreManifest
from limbeck.teachers.outputs.store_writer import StoreWriter, alone


def copy_store(
    store: OutputStore, files: StoreFiles, advance: Callable[[int], None] = lambda rows: None
) -> StoreManifest:
    """Write a store, or an entry of training, to another place as a store.

    Args:
        store: complete; a row that stands in an entry more than once is taken once.
        files: the other place.
        advance: called with the number of rows done since the last call.

    Raises:
        LimbeckError: it is the same place, another store is there, one that has been made again since a copy of it
            was begun, or the store is damaged.
    """
    if files.path("") == store.files.path(""):
        raise LimbeckError(f"{files.url} is the store itself", "name another folder or URL")
    source = _Entry(store) if store.manifest.keyed == INDEX else _Shards(store)
    with alone(files):
        writer = StoreWriter.begin(files, source.manifest)
        source.check_begun(writer.manifest, files)
        for shard, rows in source.rows.items():
            if shard not in writer.done:
                writer.record(source.write(files, shard), store.manifest.layout)
            advance(rows)
        if store.manifest.keyed == ROW and store.files.exists(MISSING):
            files.write(MISSING, store.files.read(MISSING))
        return writer.finish()


class _Shards:
    """A store's shards, as they are."""

    def __init__(self, store: OutputStore) -> None:
        self._store = store
        self._records = {shard.name: shard for shard in store.manifest.shards}
        self.manifest = store.manifest.model_copy(update={"shards": (), "complete": False})

    @property
    def rows(self) -> Mapping[str, int]:
        """How many each shard has."""
        return {name: shard.rows for name, shard in self._records.items()}

    def check_begun(self, copy: StoreManifest, files: StoreFiles) -> None:
        """Raise LimbeckError where shards of a copy that was begun are not these: a teacher that is not known by its
        weights may have answered otherwise since."""
        if any(self._records.get(shard.name) != shard for shard in copy.shards):
            raise LimbeckError(
                f"{files.url} holds part of a copy of what {self._store.files.url} was before it was made again",
                f"remove it (limbeck outputs clear {files.url}), or name another place",
            )

    def write(self, files: StoreFiles, name: str) -> ShardRecord:
        shard = self._records[name]
        files.write(name, self._store.content(shard))
        return shard


class _Entry:
    """An entry's rows in the order of training, each once, as shards that `limbeck label` could have written."""

    def __init__(self, store: OutputStore) -> None:
        self._store = store
        self._table = table = store.table_of_all()
        ids, index = table[ROW].to_numpy(), table[INDEX].to_numpy()
        order = np.argsort(index, kind="stable")
        _, first = np.unique(ids[order], return_index=True)
        self._places = order[np.sort(first)]
        self._ids = ids[self._places]
        self._size = rows_of_shard(table.nbytes / max(len(table), 1))
        self.manifest = self._as_labelled(store.manifest)

    def _as_labelled(self, entry: StoreManifest) -> StoreManifest:
        names = [column.name for column in entry.layout.columns]
        rows = {"count": len(self._ids), "fingerprint": digest_of_ids(self._ids)}
        return entry.model_copy(
            update={
                "keyed": ROW,
                "row_ids": False,
                "complete": False,
                "shards": (),
                "columns": (),
                "rows": entry.rows.model_copy(update=rows),
                "settings": {"outputs": names, "rows of a shard": self._size},
                "labelled": self._labels(self._table.slice(0, 1)) is not None,
            }
        )

    @property
    def rows(self) -> Mapping[str, int]:
        """How many each shard has."""
        starts = range(0, len(self._ids), self._size)
        return {
            shard_name(number): min(self._size, len(self._ids) - start)
            for number, start in enumerate(starts)
        }

    def check_begun(self, copy: StoreManifest, files: StoreFiles) -> None:
        """Nothing: an entry's teacher is known by its weights."""

    def write(self, files: StoreFiles, name: str) -> ShardRecord:
        start = [*self.rows].index(name) * self._size
        part = slice(start, start + self._size)
        table = self._table.take(pa.array(self._places[part]))
        layout = self._store.manifest.layout
        values = {column.name: self._values(table, column) for column in layout.columns}
        return write_shard(
            files, name, shard_table(self._ids[part], {}, self._labels(table), layout, values)
        )

    def _labels(self, table: pa.Table) -> np.ndarray | None:
        """What the outputs of some rows come to."""
        columns = [column for column in self._store.columns if column.seen is None]
        values = {column.name: self._values(table, column) for column in columns}
        return labels_of(values, self._store.classes, self._store.kind)

    @staticmethod
    def _values(table: pa.Table, column: OutputColumn) -> np.ndarray:
        return shaped_values(column, table[column.name])
