"""Which processes have a file open."""

from __future__ import annotations

import os
from pathlib import Path


def holders(lock: Path) -> list[int]:
    """The processes that have a file open, but for this one."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            try:
                opened = [one.readlink() for one in (process / "fd").iterdir()]
            except OSError:  # it has ended, or is not ours
                continue
            if lock.absolute() in opened:
                found.append(int(process.name))
    return found
