"""The folder of stored teacher outputs and augmented examples: entries by key, a size cap, the oldest used out first.

Part of `limbeck.outputs`. An entry is a folder that appears whole, by a rename; what a killed build
leaves has another name and is swept by the next one. It is read only while it is what was written.
`LIMBECK_CACHE` names the folder.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout

from limbeck.outputs.columns import INDEX, ROW, OutputColumn
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.key import digest_of_ids
from limbeck.outputs.manifest import (
    MANIFEST,
    MISSING,
    ExamplesManifest,
    ShardRecord,
    ShardsManifest,
    StoreManifest,
    read_any_manifest,
)
from limbeck.outputs.scored_shard import labels_of
from limbeck.outputs.shards import (
    rows_of_shard,
    shaped_values,
    shard_name,
    shard_table,
    write_shard,
)
from limbeck.outputs.store import OutputStore
from limbeck.outputs.writer import StoreWriter, alone
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home, checksum, damaged, put_in_place

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "LIMBECK_CACHE"
SHARD = "shard-00000.arrow"
"""The file of a training entry, or of augmented examples: one, mapped into memory."""
# The folder may be one that other programs use too, with unfinished files of their own.
_PART = ".limbeck-part"
_LOCK = ".lock"


@dataclass(frozen=True)
class StoredEntry:
    """One stored pass of a model over some rows."""

    path: Path
    manifest: StoreManifest | ExamplesManifest
    used: float
    """When it was last read or written, in seconds since 1970."""

    @property
    def key(self) -> str:
        """What it is found by."""
        return self.path.name

    @property
    def bytes(self) -> int:
        """Of its shards."""
        return self.manifest.bytes

    @property
    def outputs(self) -> StoreManifest:
        """What a stored teacher pass says of itself.

        Raises:
            LimbeckError: it holds something else.
        """
        if not isinstance(self.manifest, StoreManifest):
            raise LimbeckError(
                f"{self.path} holds {self.manifest.content}, no teacher outputs", "name another"
            )
        return self.manifest

    @property
    def table(self) -> Path:
        """The Arrow file."""
        return self.path / SHARD


@dataclass(frozen=True)
class Store:
    """All entries under one folder."""

    folder: Path

    def find(self, key: str, *, just_written: bool = False) -> StoredEntry | None:
        """The entry of that key, if it is whole; it counts as used now.

        What is damaged is said to be and counts as not there; `just_written` is not read again.
        """
        path = self.folder / key
        entry = self._read(path)
        if not just_written and path.is_dir() and (entry is None or not _is_as_written(entry)):
            logger.warning("what is stored in %s is damaged, and is made again", path)
            return None
        if entry is not None:
            with suppress(OSError):  # one that others keep may be read without a mark
                os.utime(entry.path / MANIFEST)
        return entry

    def entries(self) -> list[StoredEntry]:
        """All whole entries, the last used first."""
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        # A build that has only to be renamed looks whole already.
        paths = (path for path in paths if path.suffix != _PART)
        found = [entry for entry in map(self._read, paths) if entry is not None]
        return sorted(found, key=lambda entry: entry.used, reverse=True)

    @contextmanager
    def writing(self, key: str) -> Iterator[Path]:
        """An empty folder that becomes the entry of that key when the block ends without an error.

        What stands there before belongs to a build that was killed: the caller holds the lock.
        """
        part = self.folder / f"{key}{_PART}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            yield part
            put_in_place(part, self.folder / key)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def lock(self, key: str) -> FileLock:
        """Held by the process that builds an entry; the others wait for it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LimbeckError(
                f"{self.folder}: cannot make the folder of what is stored ({error.strerror})",
                f"name another by {FOLDER_VARIABLE}; without augment, cache=never needs none",
            ) from None
        return FileLock(self.folder / f"{key}{_LOCK}")

    def make_room(self, needed: int, limit: int) -> list[StoredEntry]:
        """Remove the entries longest unused until `needed` more bytes fit; returns those removed.

        A process that reads a removed entry reads on: its file stays until it is closed.
        """
        kept, removed = self.entries(), []
        while kept and sum(entry.bytes for entry in kept) + needed > limit:
            removed.append(kept.pop())
            self.remove(removed[-1])
        return removed

    def remove(self, entry: StoredEntry) -> None:
        """Delete an entry."""
        # First its name, so that an interrupted deletion leaves nothing that looks whole.
        (entry.path / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(entry.path, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what killed builds left; a build that is at work holds its lock."""
        for part in self.folder.glob(f"*{_PART}"):
            lock = self.lock(part.name.removesuffix(_PART))
            with suppress(Timeout), lock.acquire(timeout=0):
                shutil.rmtree(part, ignore_errors=True)
                Path(lock.lock_file).unlink(missing_ok=True)

    def _read(self, path: Path) -> StoredEntry | None:
        try:
            manifest = read_any_manifest((path / MANIFEST).read_bytes(), str(path / MANIFEST))
            sizes = [(path / shard.name).stat().st_size for shard in manifest.shards]
            used = (path / MANIFEST).stat().st_mtime
        except (OSError, LimbeckError):
            return None
        whole = manifest.complete and sizes == [shard.bytes for shard in manifest.shards]
        return StoredEntry(path, manifest, used) if whole else None


def describe(folder: Path, manifest: ShardsManifest, rows: int) -> None:
    """Write what an entry is, last of all: its one shard's rows, bytes and checksum enter the manifest."""
    file = folder / SHARD
    size = file.stat().st_size
    shard = ShardRecord(name=SHARD, rows=rows, bytes=size, checksum=checksum(file))
    whole = manifest.model_copy(update={"shards": (shard,), "complete": True})
    (folder / MANIFEST).write_text(whole.written(), encoding="utf-8")


def _is_as_written(entry: StoredEntry) -> bool:
    """Whether its shards are, byte for byte, what a build wrote; the manifest has been held against its own sum."""
    sums = {shard.name: shard.checksum for shard in entry.manifest.shards}
    return not damaged(entry.path, sums)


def default_store() -> Store:
    """The folder of `LIMBECK_CACHE`, or `limbeck` in the user's cache folder."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Store(at_home(named))
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Store(at_home(caches) / "limbeck")


# Stored outputs brought elsewhere as a store of Parquet shards, without a bit changed. What a
# training keeps for itself, mapped into memory and found by its rows' places, becomes a store
# whose rows are found by their texts. A copy that was stopped goes on where it was.


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
