"""One malformed input and the command line that meets it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TINY = ("--model", "pocket-1-8-1", "--max-steps", "1", "epochs=1")
"""Should an input be accepted, the run is over in a second."""


@dataclass(frozen=True)
class Case:
    """A name, the arguments of `limbeck`, and what the output says where it may be accepted."""

    name: str
    line: tuple[str, ...]
    warned: str | None = None


def finetune(folder: Path, name: str, *more: object, warned: str | None = None) -> Case:
    """A short training run that meets the input."""
    out = folder / "out" / str(abs(hash(name)))
    return Case(name, ("finetune", *TINY, "--out", str(out), *map(str, more)), warned)


def own_file(folder: Path, name: str, path: Path, warned: str | None = None) -> Case:
    """A short training run on a file with the columns q and y."""
    columns = ("--task", "own", "--text-columns", "q", "--label-column", "y")
    return finetune(folder, name, "--data", path, *columns, warned=warned)
