"""What a model is called for short, where its path would be too long."""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.given import PREFIX


def short_names(paths: Sequence[str]) -> list[str]:
    """What models are called: the end of each path, as much of it as tells them apart.

    A run's student is called as its run; what the run keeps of its first stage, `RUN/first_stage`.
    """
    parts = [_parts(str(path)) for path in paths]
    for length in range(1, max(map(len, parts), default=1) + 1):
        names = ["/".join(found[-length:]) for found in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def short_name(path: str) -> str:
    """What one model is called where no other stands beside it."""
    return short_names([path])[0]


def _parts(path: str) -> list[str]:
    found = [part for part in path.removeprefix(PREFIX).replace("\\", "/").split("/") if part]
    if len(found) < 2:
        return found
    *before, last = found
    if last == "student":
        return before
    return [*before[:-1], f"{before[-1]}/{last}"] if last == "first_stage" else found
