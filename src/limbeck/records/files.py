"""Files written whole or not at all.

Beside the record on the way of a training step: a killed run leaves the last good file, never half
of a new one.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from limbeck.errors import LimbeckError


def write_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all: a temporary neighbour, then one rename.

    Raises LimbeckError when the folder cannot be made or written.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"
        )
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        # mkstemp makes files only the owner may read; give what open() would have given.
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        raise LimbeckError(
            f"cannot write {path}: {error.strerror or error}", "choose a folder you may write to"
        ) from None
