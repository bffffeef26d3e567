"""A folder of files on this machine or anywhere that fsspec reaches, each written atomically.

Part of `limbeck.outputs`.
"""

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home, write_whole

_PART = ".part"


@dataclass(frozen=True)
class StoreFiles:
    """The files of one store.

    Attributes:
        url: a local path, or a URL such as `s3://bucket/store` or `memory://store`.
    """

    url: str

    @cached_property
    def _place(self) -> tuple[Any, str]:
        """The file system, and the folder's path in it."""
        text = str(self.url)
        try:
            found: tuple[Any, str] = fsspec.core.url_to_fs(
                text if "://" in text else str(at_home(text))
            )
            return found
        except ImportError as error:
            raise LimbeckError(f"{text}: {error}", "install the package in the message") from None
        except ValueError as error:
            raise LimbeckError(
                f"{text}: {error}", "name a folder, or a URL of a file system that fsspec knows"
            ) from None

    @property
    def folder(self) -> Path | None:
        """The folder, if it is on this machine."""
        system, root = self._place
        return Path(root) if isinstance(system, LocalFileSystem) else None

    def path(self, name: str) -> str:
        """A file's path in its file system."""
        return posixpath.join(self._place[1], name)

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        with self._said(name):
            return bool(self._place[0].isfile(self.path(name)))

    def size(self, name: str) -> int:
        """Bytes of a file, written by any process; −1 if it does not exist."""
        system, root = self._place
        with self._said(name):
            # For a folder that was listed before, files that others have written since would be invisible.
            system.invalidate_cache(root)
            try:
                return int(system.size(self.path(name)))
            except FileNotFoundError:
                return -1

    def read(self, name: str) -> bytes:
        """A file's content.

        Raises:
            FileNotFoundError: it does not exist.
            LimbeckError: it cannot be read.
        """
        with self._said(name):
            content = self._place[0].cat_file(self.path(name))
        return bytes(content)

    def open(self, name: str) -> IO[bytes]:
        """A file to read parts of."""
        with self._said(name):
            found: IO[bytes] = self._place[0].open(self.path(name), "rb")
            return found

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically, replacing any file of the same name.

        Raises:
            LimbeckError: it cannot be written.
        """
        if self.folder is not None:
            write_whole(self.folder / name, content)
            return
        system, part = self._place[0], self.path(name + _PART)
        with self._said(name):
            try:
                system.pipe_file(part, content)
            except FileNotFoundError:
                self._make_folder()
                system.pipe_file(part, content)
            # Where a file appears complete only when it is closed, this costs a copy; elsewhere nothing else is safe.
            system.mv(part, self.path(name))

    def _make_folder(self) -> None:
        """Make the folder; never a bucket, because a misspelled name would create one in someone's account.

        Raises:
            LimbeckError: the bucket is not there.
        """
        system, root = self._place
        bucket = root.split("/")[0]  # empty where paths begin at a root
        if bucket and not system.exists(bucket):
            raise LimbeckError(f"{self.url}: {bucket} does not exist", "make it, or check its name")
        system.makedirs(root, exist_ok=True)

    def names(self) -> list[str]:
        """The names of all files; none where there is no such folder."""
        system, root = self._place
        with self._said(""):
            try:
                return sorted(posixpath.basename(path) for path in system.find(root, maxdepth=1))
            except FileNotFoundError:
                return []

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""
        with self._said(name), suppress(FileNotFoundError):
            self._place[0].rm_file(self.path(name))

    @contextmanager
    def _said(self, name: str) -> Iterator[None]:
        """Whatever a file system raises becomes a LimbeckError that names the file; a missing file stays one."""
        try:
            yield
        except (LimbeckError, FileNotFoundError):
            raise
        except Exception as error:
            where = posixpath.join(self.url, name) if name else self.url
            reason = str(error).strip() or type(error).__name__
            raise LimbeckError(
                f"{where}: {reason:.300}", "check the address and your access rights"
            ) from error
