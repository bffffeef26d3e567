"""A store of teacher outputs on its way: begun or continued, shard by shard. Part of `limbeck.outputs`.

A shard is written first and named in the manifest then, so that a kill at any moment leaves a store that can be
continued.
"""

import logging
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import numpy as np

from limbeck.outputs import key
from limbeck.outputs.columns import INDEX, ROW, OutputColumn, OutputLayout
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.manifest import MANIFEST, MISSING, ShardRecord, StoreManifest
from limbeck.outputs.shards import (
    is_whole,
    labels_of,
    rows_of_shard,
    shard_name,
    shard_table,
    write_shard,
)
from limbeck.outputs.store import OutputStore, need_manifest, read_manifest
from limbeck.support import lock
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import damaged, is_temporary

logger = logging.getLogger(__name__)

# Next to its manifest; a start that was killed before the first one, or an earlier version's deletion, may leave it.
_OF_STORE = re.compile(
    rf"shard-\d+\.parquet(\.part)?|{re.escape(MANIFEST)}\.part|{re.escape(MISSING)}(\.part)?"
)
_OWN_FILE = re.compile(rf"\..*|{_OF_STORE.pattern}")


class StoreWriter:
    """Makes a store; several processes may write its shards, one alone records them.

    Attributes:
        files: its folder.
        manifest: as it was last written.
    """

    def __init__(self, files: StoreFiles, manifest: StoreManifest) -> None:
        self.files = files
        self.manifest = manifest

    @classmethod
    def begin(cls, files: StoreFiles, manifest: StoreManifest) -> "StoreWriter":
        """Begin a store, or continue the one that is there.

        Args:
            files: its future folder.
            manifest: its description, without shards.

        Raises:
            LimbeckError: another store is there, or files that are no store's; with all that differs.
        """
        _sweep(files)
        found = read_manifest(files)
        if found is None:
            others = [name for name in files.names() if not _OWN_FILE.fullmatch(name)]
            if others:
                raise LimbeckError(
                    f"{files.url} holds other files: {', '.join(others[:3])}",
                    "name a new or an empty folder with --out",
                )
            writer = cls(files, manifest)
            writer._write(manifest)
            return writer
        differences = differing(found, manifest)
        if differences:
            raise LimbeckError(
                [_refused(files.url, *difference) for difference in differences.items()]
            )
        if found.made_with != manifest.made_with:
            logger.warning(
                "%s was begun with other versions (%s): outputs may differ by rounding from now on",
                files.url,
                ", ".join(f"{name} {version}" for name, version in found.made_with.items()),
            )
        writer = cls(files, found)
        writer._forget_damaged()
        return writer

    @property
    def done(self) -> frozenset[str]:
        """The names of the shards that are there."""
        return frozenset(shard.name for shard in self.manifest.shards)

    def record(
        self, shard: ShardRecord, layout: OutputLayout, costs: Mapping[str, float] | None = None
    ) -> None:
        """Name a shard that has been written, and add its cost.

        Raises:
            LimbeckError: its columns differ from the shards before it, or it does not exist: another process may have
                written to a folder of the same name elsewhere.
        """
        columns = layout.columns
        before = self.manifest.columns
        if before and before != columns:
            raise LimbeckError(
                f"{self.files.url}: {shard.name} has the columns {_names(columns)}, the shards before "
                f"it {_names(before)}",
                "a labeller must return the same outputs for all rows",
            )
        if self.files.size(shard.name) != shard.bytes:
            raise LimbeckError(
                f"{self.files.url}: {shard.name} was made, and is not there as it was written",
                "name a place with --out that every process reaches, a shared folder or a URL, and run the same "
                "command again",
            )
        spent = self._with(costs or {})
        shards = sorted({*self.manifest.shards, shard}, key=lambda one: one.name)
        self._write(
            self.manifest.model_copy(
                update={"shards": tuple(shards), "columns": columns, "costs": spent}
            )
        )

    def add_costs(self, costs: Mapping[str, float]) -> None:
        """Costs that led to no shard."""
        if any(costs.values()):
            self._write(self.manifest.model_copy(update={"costs": self._with(costs)}))

    def _with(self, costs: Mapping[str, float]) -> dict[str, float]:
        spent = dict(self.manifest.costs)
        for name, count in costs.items():
            spent[name] = spent.get(name, 0.0) + count
        return spent

    def finish(self) -> StoreManifest:
        """Mark the store as complete, except for the rows that were left out.

        Raises:
            LimbeckError: they are not.
        """
        stored, wanted = self.manifest.stored_rows, self.manifest.rows.count
        if stored + len(self.manifest.missing_rows) != wanted:
            raise LimbeckError(
                f"{self.files.url}: {stored} of {wanted} rows were labelled",
                "run the same command again, which continues it",
            )
        if not self.manifest.complete:
            self._write(self.manifest.model_copy(update={"complete": True}))
        return self.manifest

    def _forget_damaged(self) -> None:
        """Shards that have changed since they were written are made again."""
        shards = self.manifest.shards
        bad = self._damaged()
        if bad:
            named = ", ".join(sorted(bad))
            logger.warning("%s: missing or damaged, made again: %s", self.files.url, named)
            kept = tuple(shard for shard in shards if shard.name not in bad)
            self._write(self.manifest.model_copy(update={"shards": kept, "complete": False}))

    def _damaged(self) -> set[str]:
        """The names of shards that have changed since they were written."""
        shards, files = self.manifest.shards, self.files
        if files.folder is not None:
            return set(damaged(files.folder, {shard.name: shard.checksum for shard in shards}))
        if self.manifest.complete:
            return {shard.name for shard in shards if not is_whole(files, shard)}
        # Far away sizes do for a store that is continued, which may be often: reading all of it may take longer than
        # making it. Once it is complete there is nothing else to do than to look.
        return {shard.name for shard in shards if files.size(shard.name) != shard.bytes}

    def _write(self, manifest: StoreManifest) -> None:
        self.files.write(MANIFEST, manifest.written().encode())
        self.manifest = manifest


def _sweep(files: StoreFiles) -> None:
    """Remove unfinished files of a killed start."""
    if files.folder is not None and files.folder.is_dir():
        for path in files.folder.iterdir():
            if is_temporary(path):
                path.unlink(missing_ok=True)


def alone(files: StoreFiles, option: str = "out") -> AbstractContextManager[None]:
    """While the block runs no other process of this machine writes the store; far away none is kept from it.

    Raises:
        LimbeckError: another one does.
    """
    return nullcontext() if files.folder is None else lock.held(files.folder, option)


def differing(found: StoreManifest, wanted: StoreManifest) -> dict[str, tuple[Any, Any]]:
    """The differences between two stores, except for their progress: by name, the existing and the requested value."""
    there, asked = (_identity(manifest) for manifest in (found, wanted))
    names = sorted({*there, *asked})
    return {
        name: (there.get(name), asked.get(name))
        for name in names
        if there.get(name) != asked.get(name)
    }


def _identity(manifest: StoreManifest) -> dict[str, Any]:
    content = manifest.model_dump(mode="json")
    parts = {
        "task type": content["kind"],
        "classes": content["classes"],
        "text": content["text"],
        # Rows are identified by content; the names of their columns do not matter.
        "text columns": content["rows"]["columns"] if manifest.text else [],
        "targets": content["rows"]["target"],
        "tokens": content["tokens"],
        "rows": [content["rows"]["count"], content["rows"]["fingerprint"]],
    }
    teacher = {f"teacher {name}": value for name, value in manifest.teacher.fingerprint.items()}
    found: dict[str, Any] = parts | teacher | content["settings"]
    return found


def _refused(url: str, name: str, values: tuple[Any, Any]) -> Problem:
    there, asked = (f"{value!r:.80}" for value in values)
    return Problem(
        f"{url} was made with other {name}: {there} there, {asked} now",
        "repeat the command that made it, or name another folder with --out",
    )


def _names(columns: tuple[OutputColumn, ...]) -> str:
    return ", ".join(f"{one.name} {[*one.shape]} {one.dtype}" for one in columns)


def remove_store(url: str) -> int:
    """Delete a store: its manifest, its shards, and its files about rows without outputs.

    Shards that the manifest does not name, as a kill leaves them, are its own too; other files in the folder stay.
    Returns the bytes of the shards that were named.

    Raises:
        LimbeckError: it does not exist, or its manifest is damaged, so that its files are unknown.
    """
    files = StoreFiles(url)
    manifest = need_manifest(files)
    with alone(files, option=""):
        # First its name, so that an interrupted deletion leaves nothing that looks complete.
        files.remove(MANIFEST)
        found = {name for name in files.names() if _OF_STORE.fullmatch(name)}
        # A far listing may be older than the last shards.
        for name in sorted({*found, *(shard.name for shard in manifest.shards), MISSING}):
            files.remove(name)
        if files.folder is not None:
            _sweep(files)
    if files.folder is not None:
        (files.folder / lock.LOCK).unlink(missing_ok=True)
        with suppress(OSError):  # it holds something else
            files.folder.rmdir()
    return manifest.bytes


def copy_store(
    store: OutputStore, files: StoreFiles, advance: Callable[[int], None] = lambda rows: None
) -> StoreManifest:
    """Write a store, or an entry of training, to another place as a store, without a bit changed.

    A copy that was stopped resumes.

    Args:
        store: complete; if a row occurs in an entry more than once, it is copied once.
        files: the other place.
        advance: called with the number of rows done since the last call.

    Raises:
        LimbeckError: it is the same place, another store is there, one that has been made again since a copy of it
            was begun, or the store is damaged.
    """
    if files.path("") == store.files.path(""):
        raise LimbeckError(f"{files.url} is the store itself", "name another folder or URL")
    mapped = store.manifest.keyed == INDEX
    source, shards = _as_labelled(store) if mapped else _as_it_is(store)
    with alone(files):
        writer = StoreWriter.begin(files, source)
        known = {shard.name: shard for shard in store.manifest.shards}
        # A teacher that is not known by its weights may have answered otherwise since.
        if not mapped and any(known.get(one.name) != one for one in writer.manifest.shards):
            raise LimbeckError(
                f"{files.url} holds part of a copy of what {store.files.url} was before it was made again",
                f"remove it (limbeck outputs clear {files.url}), or name another place",
            )
        for name, rows in shards.items():
            if name not in writer.done:
                shard = _write_ids(store, files, name, rows) if mapped else known[name]
                if not mapped:
                    files.write(name, store.content(shard))
                writer.record(shard, store.manifest.layout)
            advance(len(rows))
        if not mapped and store.files.exists(MISSING):
            files.write(MISSING, store.files.read(MISSING))
        return writer.finish()


def _as_it_is(store: OutputStore) -> tuple[StoreManifest, dict[str, np.ndarray]]:
    """A store's manifest without shards, and these with their rows."""
    begun = store.manifest.model_copy(update={"shards": (), "complete": False})
    return begun, {shard.name: np.arange(shard.rows) for shard in store.manifest.shards}


def _as_labelled(store: OutputStore) -> tuple[StoreManifest, dict[str, np.ndarray]]:
    """An entry as `limbeck label` could have written it: its rows in the order of training, each once."""
    table = store.table_of_all()
    order = np.argsort(table[INDEX].to_numpy(), kind="stable")
    ids = table[ROW].to_numpy()[order]
    ids = ids[np.sort(np.unique(ids, return_index=True)[1])]
    size = rows_of_shard(table.nbytes / max(len(table), 1))
    names = [column.name for column in store.columns]
    rows = {"count": len(ids), "fingerprint": key.digest_of_ids(ids)}
    begun = store.manifest.model_copy(
        update={
            "keyed": ROW,
            "row_ids": False,
            "complete": False,
            "shards": (),
            "columns": (),
            "rows": store.manifest.rows.model_copy(update=rows),
            "settings": {"outputs": names, "rows of a shard": size},
            "labelled": _labels(store, store.take(ids[:1], names)) is not None,
        }
    )
    starts = range(0, len(ids), size)
    return begun, {shard_name(start // size): ids[start : start + size] for start in starts}


def _write_ids(store: OutputStore, files: StoreFiles, name: str, ids: np.ndarray) -> ShardRecord:
    """A shard of some of an entry's rows."""
    values = store.take(ids, [column.name for column in store.columns])
    table = shard_table(ids, {}, _labels(store, values), store.manifest.layout, values)
    return write_shard(files, name, table)


def _labels(store: OutputStore, values: Mapping[str, np.ndarray]) -> np.ndarray | None:
    return labels_of(values, store.classes, store.kind)
