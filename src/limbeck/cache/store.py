"""The folder of all that is stored, answers and copies: entries by key, a size cap, least recently used out first.

Part of `limbeck.cache`. An entry is a folder that appears whole, by a rename; what a killed build
leaves has another name and is swept by the next one. `LIMBECK_CACHE` names the folder.
"""

from __future__ import annotations

import json
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
from limbeck.plain import read_json

FOLDER_VARIABLE = "LIMBECK_CACHE"
TABLE = "answers.arrow"
ABOUT = "about.json"
_PART = ".part"
_LOCK = ".lock"


@dataclass(frozen=True)
class Entry:
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

    def find(self, key: str) -> Entry | None:
        """The entry of that key, if it is whole; it counts as used now."""
        entry = self._read(self.folder / key)
        if entry is not None:
            with suppress(OSError):  # one that others keep may be read without a mark
                os.utime(entry.path / ABOUT)
        return entry

    def entries(self) -> list[Entry]:
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
            shutil.rmtree(self.folder / key, ignore_errors=True)
            part.rename(self.folder / key)
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

    def make_room(self, needed: int, limit: int) -> list[Entry]:
        """Remove the entries longest unused until `needed` more bytes fit; returns those removed.

        A process that reads a removed entry reads on: its file stays until it is closed.
        """
        kept, removed = self.entries(), []
        while kept and sum(entry.bytes for entry in kept) + needed > limit:
            removed.append(kept.pop())
            self.remove(removed[-1])
        return removed

    def remove(self, entry: Entry) -> None:
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

    def _read(self, path: Path) -> Entry | None:
        try:
            about = read_json((path / ABOUT).read_bytes(), str(path / ABOUT))
            size = (path / TABLE).stat().st_size
            used = (path / ABOUT).stat().st_mtime
        except (OSError, LimbeckError):
            return None
        whole = isinstance(about, dict) and about.get("bytes") == size
        return Entry(path, about, size, used) if whole else None


def describe(path: Path, about: dict[str, Any]) -> None:
    """Write what an entry is, last of all: it is whole when the size written here is its table's."""
    size = (path / TABLE).stat().st_size
    content = about | {"bytes": size, "made": time.strftime("%Y-%m-%dT%H:%M:%S")}
    (path / ABOUT).write_text(json.dumps(content, indent=1), encoding="utf-8")


def default_store() -> Store:
    """The folder of `LIMBECK_CACHE`, or `limbeck` in the user's cache folder."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Store(Path(named).expanduser())
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Store(Path(caches).expanduser() / "limbeck")
