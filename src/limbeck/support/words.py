"""Bytes as a person reads them, alike wherever limbeck prints a size."""

from collections.abc import Sequence
from pathlib import Path

from limbeck.support.given import PREFIX

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def human_size(count: float) -> str:
    """`812 B`, `3.4 KiB`, `1.3 GiB`: in the largest unit of which there is at least one."""
    size, unit = float(count), 0
    # What would be rounded up to 1024 is one of the next unit.
    while round(size, 1) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.{1 if unit else 0}f} {_UNITS[unit]}"


# Numbers of things in sentences.


def count_of(number: float, noun: str) -> str:
    """`1 task`, `2 tasks`, `2 processes`, `0.5 epochs`: the number and a noun whose plural ends in s."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}" if isinstance(number, int) else f"{number:g} {noun}{ending}"


def listed(things: Sequence[str], most: int) -> str:
    """`a, b, c and 4 more`: the first `most` things, and how many more."""
    rest = len(things) - most
    return ", ".join(things[:most]) + (f" and {rest} more" if rest > 0 else "")


# Names that come from files, and may have any length.


def short_text(text: str, longest: int = 60) -> str:
    """A text, such as a class's name, cut to the characters for which a sentence or a table has room."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


# A model's short name, if its path would be too long.


def short_names(paths: Sequence[str]) -> list[str]:
    """Short names of models: the end of each path, long enough to distinguish them.

    A run's student has the name of its run; the student of its first stage is `RUN/first_stage`.
    """
    parts = [_parts(str(path)) for path in paths]
    for length in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(found[-length:]) for found in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def short_name(path: str) -> str:
    """The short name of one model alone."""
    return short_names([path])[0]


def _parts(path: str) -> list[str]:
    found = [part for part in path.removeprefix(PREFIX).replace("\\", "/").split("/") if part]
    if len(found) < 2:
        return found
    *before, last = found
    if last == "student" and not (Path(path) / last).is_dir():  # a run may have that name itself
        return before
    return [*before[:-1], f"{before[-1]}/{last}"] if last == "first_stage" else found
