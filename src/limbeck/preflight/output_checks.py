"""Can the run write where it is told to.

Part of `limbeck.preflight`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from limbeck.support.errors import Problem
from limbeck.support.files import at_home


def check_output(folder: str | Path) -> list[Problem]:
    """An output folder that cannot be made or written; found out by writing, then removing."""
    folder = at_home(folder)
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return [
            Problem(f"output folder {folder}: {place} is a file", "choose another folder for --out")
        ]
    try:
        # Asked by doing: permission bits say nothing of read-only mounts, quotas or root.
        with tempfile.NamedTemporaryFile(dir=place, prefix=".limbeck-"):
            pass
    except OSError as error:
        return [
            Problem(
                f"output folder {folder}: {place} cannot be written ({error.strerror})",
                "choose another folder for --out, or fix its permissions",
            )
        ]
    return []
