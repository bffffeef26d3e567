"""The folder of stored teacher outputs and augmented examples: entries by key, a size cap, the oldest used out first.

Part of `limbeck.teachers.outputs`. An entry is a folder that appears whole, by a rename; what a killed build
leaves has another name and is swept by the next one. It is read only while it is what was written.
`LIMBECK_CACHE` names the folder.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from limbeck.errors import LimbeckError
from limbeck.files import at_home, checksum, checksum_of_text, put_in_place
from limbeck.plain import read_json

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "LIMBECK_CACHE"
TABLE = "answers.arrow"
ABOUT = "about.json"
# The folder may be one that other programs use too, with unfinished files of their own.
_PART = ".limbeck-part"
_LOCK = ".lock"
_TABLE_SUM = "checksum"
_OWN_SUM = "own_checksum"


@dataclass(frozen=True)
class StoredEntry:
    """One stored pass of a model over some rows."""

    path: Path
    about: dict[str, Any]
    bytes: int
    used: float
    """When it was last read or written, in seconds since 1970."""

    @property
    def key(self) -> str:
        """What it is found by."""
        return self.path.name

    @property
    def table(self) -> Path:
        """The Arrow file."""
        return self.path / TABLE


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
                os.utime(entry.path / ABOUT)
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
        (entry.path / ABOUT).unlink(missing_ok=True)
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
            about = read_json((path / ABOUT).read_bytes(), str(path / ABOUT))
            size = (path / TABLE).stat().st_size
            used = (path / ABOUT).stat().st_mtime
        except (OSError, LimbeckError):
            return None
        whole = isinstance(about, dict) and about.get("bytes") == size
        return StoredEntry(path, about, size, used) if whole else None


def describe(path: Path, about: dict[str, Any]) -> None:
    """Write what an entry is, last of all: its table's size and checksum, and one of all this."""
    own = {
        "bytes": (path / TABLE).stat().st_size,
        "made": time.strftime("%Y-%m-%dT%H:%M:%S"),
        _TABLE_SUM: checksum(path / TABLE),
    }
    # As it is read back: JSON has no tuples.
    content = json.loads(json.dumps(about | own))
    content[_OWN_SUM] = _own_sum(content)
    (path / ABOUT).write_text(json.dumps(content, indent=1), encoding="utf-8")


def _is_as_written(entry: StoredEntry) -> bool:
    """Whether table and description are, byte for byte, what a build wrote."""
    about = {name: value for name, value in entry.about.items() if name != _OWN_SUM}
    if entry.about.get(_OWN_SUM) != _own_sum(about):
        return False
    try:
        return checksum(entry.table) == about.get(_TABLE_SUM)
    except OSError:
        return False


def _own_sum(about: dict[str, Any]) -> str:
    return checksum_of_text(json.dumps(about, sort_keys=True))


def default_store() -> Store:
    """The folder of `LIMBECK_CACHE`, or `limbeck` in the user's cache folder."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Store(at_home(named))
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Store(at_home(caches) / "limbeck")
