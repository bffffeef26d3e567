"""The folder of stored teacher outputs and augmented examples: entries by key, a size cap, the oldest used out first.

Part of `limbeck.outputs`. An entry is a folder that appears complete, by a rename; the remains of a killed build
have another name, and the next build deletes them. An entry is read only if its checksums match.
`LIMBECK_CACHE` names the folder.
"""

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from limbeck.outputs.manifest import (
    MANIFEST,
    ExamplesManifest,
    ShardRecord,
    ShardsManifest,
    StoreManifest,
    read_any_manifest,
)
from limbeck.support import files, words
from limbeck.support.errors import LimbeckError

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "LIMBECK_CACHE"
SHARD = "shard-00000.arrow"
"""The file of a training entry, or of augmented examples: one, mapped into memory."""
# The folder may be one that other programs use too, with unfinished files of their own.
_PART = ".limbeck-part"
_LOCK = ".lock"


class UnstorableError(LimbeckError):
    """Outputs that float16 cannot hold, or for which there is no room."""


@dataclass(frozen=True)
class StoredEntry:
    """One stored pass of a model over some rows."""

    path: Path
    manifest: StoreManifest | ExamplesManifest
    used: float
    """When it was last read or written, in seconds since 1970."""

    @property
    def key(self) -> str:
        """The entry's key."""
        return self.path.name

    @property
    def bytes(self) -> int:
        """The bytes of its shards."""
        return self.manifest.bytes

    @property
    def outputs(self) -> StoreManifest:
        """The description of a stored teacher pass.

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
        """The entry with that key, if it is complete; it counts as used now.

        A damaged entry is reported and counts as missing; `just_written` is not read again.
        """
        path = self.folder / key
        entry = self._read(path)
        if not just_written and path.is_dir() and (entry is None or not _is_as_written(entry)):
            logger.warning("the cache entry %s is damaged, and is made again", path)
            return None
        if entry is not None:
            with suppress(OSError):  # one that others keep may be read without a mark
                os.utime(entry.path / MANIFEST)
        return entry

    def entries(self) -> list[StoredEntry]:
        """All complete entries, the last used first."""
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        # A finished build that still has to be renamed already looks complete.
        paths = (path for path in paths if path.suffix != _PART)
        found = [entry for entry in map(self._read, paths) if entry is not None]
        return sorted(found, key=lambda entry: entry.used, reverse=True)

    @contextmanager
    def writing(self, key: str) -> Iterator[Path]:
        """An empty folder that becomes the entry of that key when the block ends without an error.

        A folder that is already there belongs to a killed build: the caller holds the lock.
        """
        part = self.folder / f"{key}{_PART}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            yield part
            files.put_in_place(part, self.folder / key)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def made(self, key: str, make: Callable[[Path], None], limit: int) -> tuple[StoredEntry, bool]:
        """The entry of that key, made by one process while others wait, and whether it was this one.

        Args:
            make: writes it into an empty folder.
            limit: bytes that all entries together may take: for its sake those longest unused go.

        Raises:
            UnstorableError: the disk is full.
        """
        with self.lock(key):
            found = self.find(key)  # another process may have made it while this one waited
            if found is not None:
                return found, False
            self.sweep()
            try:
                with self.writing(key) as folder:
                    make(folder)
                    for removed in self.make_room((folder / SHARD).stat().st_size, limit):
                        size = words.human_size(removed.bytes)
                        logger.info("teacher cache: removed %s (%s)", removed.key, size)
            except OSError as error:
                if not files.is_full(error):
                    raise
                raise UnstorableError(
                    f"cache: the disk is full: {self.folder} has no room for the teacher's outputs",
                    f"make room there, name another folder by {FOLDER_VARIABLE}, or run with cache=never",
                ) from error
            entry = self.find(key, just_written=True)
        assert entry is not None  # just renamed into its place
        return entry, True

    def lock(self, key: str) -> FileLock:
        """Held by the process that builds an entry; the others wait for it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LimbeckError(
                f"{self.folder}: cannot create the cache folder ({error.strerror})",
                f"set another with {FOLDER_VARIABLE}; without augment, cache=never needs no folder",
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
        # First its name, so that an interrupted deletion leaves nothing that looks complete.
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
    """Write an entry's manifest, last of all: its one shard's rows, bytes and checksum are entered there."""
    file = folder / SHARD
    size = file.stat().st_size
    shard = ShardRecord(name=SHARD, rows=rows, bytes=size, checksum=files.checksum(file))
    whole = manifest.model_copy(update={"shards": (shard,), "complete": True})
    (folder / MANIFEST).write_text(whole.written(), encoding="utf-8")


def _is_as_written(entry: StoredEntry) -> bool:
    """Whether its shards are byte for byte as written; the manifest's own checksum has been verified."""
    sums = {shard.name: shard.checksum for shard in entry.manifest.shards}
    return not files.damaged(entry.path, sums)


def default_store() -> Store:
    """The folder of `LIMBECK_CACHE`, or `limbeck` in the user's cache folder."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Store(files.at_home(named))
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Store(files.at_home(caches) / "limbeck")
