"""Which files are named, and what form their endings say they have. Part of `limbeck.data.streams`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from limbeck.data.endings import form_of, known_endings
from limbeck.data.unlabelled_files import matching
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home, no_such_file

FORMATS = ("csv", "tsv", "jsonl", "text", "parquet")
STANDARD_INPUT = "-"
IMAGE_COLUMN = "image"
"""The column of files that are images."""
_IMAGES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"})


def named_files(sources: Sequence[str | Path]) -> list[Path | str]:
    """Files and patterns in the order in which they are named, those of a folder or a pattern sorted.

    Standard input is `-`.

    Raises:
        LimbeckError: all that is not there.
    """
    found: list[Path | str] = []
    problems = []
    for source in map(str, sources):
        path = at_home(source)
        if source == STANDARD_INPUT:
            found.append(source)
        elif path.is_dir():
            inside = sorted(
                one for one in path.iterdir() if one.is_file() and (form_of(one) or is_image(one))
            )
            found += inside
            if not inside:
                problems.append(
                    Problem(
                        f"{source} is a folder without files of rows or images",
                        f"files that are read end in {known_endings()}; or in {', '.join(sorted(_IMAGES))}",
                    )
                )
        elif path.exists():
            found.append(path)
        elif matches := matching(source):
            found += matches
        else:
            text = "; a text itself comes by standard input (-), and in Python in a list"
            also = text if len(source.split()) > 1 else ""
            problems.append(
                Problem(f"no file has a name like {source}", f"check the path{also}")
                if {*"*?["} & {*source}
                else no_such_file("data", source, also=also)
            )
    if found.count(STANDARD_INPUT) and len(found) > 1:
        problems.append(
            Problem("standard input is named beside others", "give - alone, or files alone")
        )
    if problems:
        raise LimbeckError(problems)
    return found


def is_image(path: Path) -> bool:
    """Whether a file's ending is an image's."""
    return path.suffix.lower() in _IMAGES
