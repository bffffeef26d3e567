"""The manifest of a run's folder: the names of the run's files, and checksums of the shipped ones.

It is `manifest.json`, next to a run's files. It is the first file of a run and the last to be removed:
only files that it names are ever deleted, and a student is the run's only while its checksums match.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

from limbeck.support.errors import LimbeckError
from limbeck.support.files import checksum_of_text, damaged, write_whole

NAME = "manifest.json"
_VERSION = "limbeck"


@dataclass(frozen=True)
class Manifest:
    """Attributes: `names` of files, relative to the folder, with `*` for any; `checksums` of some."""

    names: tuple[str, ...]
    checksums: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """A folder's manifest; None if it has no manifest of ours."""
        try:
            found = json.loads((folder / NAME).read_text(encoding="utf-8"))
            if _VERSION not in found:
                return None
            names, checksums = found["names"], found["checksums"]
            if not all(isinstance(text, str) for text in (*names, *checksums, *checksums.values())):
                return None
            return cls(tuple(names), dict(checksums))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None

    def write(self, folder: Path) -> None:
        """Write it into a folder atomically."""
        about = {_VERSION: metadata.version("limbeck"), "names": [*self.names]}
        content = about | {"checksums": dict(self.checksums)}
        write_whole(folder / NAME, json.dumps(content, indent=1) + "\n")

    def holding(self, checksums: Mapping[str, str]) -> "Manifest":
        """Replace its files and checksums by these."""
        return replace(self, checksums=dict(checksums))

    def damaged(self, folder: Path, start: str = "") -> list[str]:
        """The files with checksums that are missing or have changed, below `start`."""
        return damaged(
            folder, {name: sum_ for name, sum_ in self.checksums.items() if name.startswith(start)}
        )

    def files(self, folder: Path) -> Iterator[Path]:
        """Those that it names and that are there, in the folder itself and nowhere else."""
        root = folder.resolve()
        for name in (*self.names, *self.checksums):
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                continue
            for path in list(folder.glob(name)):
                inside = path.parent.resolve().is_relative_to(root)
                if inside and path.name != NAME and (path.is_symlink() or path.is_file()):
                    yield path

    def delete(self, folder: Path) -> None:
        """Remove them, the folders that are empty then, and at last the manifest."""
        emptied: set[Path] = set()
        for path in self.files(folder):
            path.unlink(missing_ok=True)
            emptied.update(path.relative_to(folder).parents)
        for parent in sorted(emptied, key=lambda place: len(place.parts), reverse=True):
            if parent.parts:
                with suppress(OSError):  # it holds something else
                    (folder / parent).rmdir()
        (folder / NAME).unlink(missing_ok=True)


# A record's own checksum: a record that was edited by hand is not read. Below every module that
# reads a `record.json`.


_CHECKSUM = "checksum"


class DamagedRecordError(LimbeckError):
    """A record that is not what its checksum was taken of."""


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """A record in plain JSON, with the checksum of its content."""
    return content | {_CHECKSUM: _of(content)}


def verified(content: object, source: Path) -> object:
    """The content without its checksum; earlier versions wrote none.

    Raises:
        DamagedRecordError: it is not what its checksum was taken of.
    """
    if not isinstance(content, dict) or _CHECKSUM not in content:
        return content
    if content[_CHECKSUM] != _of(content):
        raise DamagedRecordError(
            f"{source} is damaged, or was edited: it is not what its checksum was taken of",
            f"put back a copy of it; or take out its line {_CHECKSUM!r}, to use it as it is",
        )
    return {key: value for key, value in content.items() if key != _CHECKSUM}


def _of(content: dict[str, Any]) -> str:
    """The checksum of a record's content, independent of formatting."""
    said = {key: value for key, value in content.items() if key != _CHECKSUM}
    return checksum_of_text(json.dumps(said, sort_keys=True))
