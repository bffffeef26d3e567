"""Finding the records of many runs.

First step of `limbeck.reporting.tables`: folders in, records out; failed and unfinished runs stay in.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from limbeck.records import RECORD_NAME, Record, is_collection, read_collection
from limbeck.support.errors import LimbeckError, Problem


def collect(paths: Iterable[str | Path]) -> list[Record]:
    """All records in the given run folders, folders of runs (at any depth), record files and
    files of many records (`.jsonl.gz`).

    Each file once, in the order of the paths and then of the names. Raises LimbeckError that lists
    every path without a record and every file that is not one, so that no run is left out silently.
    """
    files: dict[Path, None] = {}
    problems: list[Problem] = []
    for path in map(Path, paths):
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if _holds_records(file))
            if not found:
                problems.append(
                    Problem(f"no {RECORD_NAME} anywhere in {path}", "name a folder that holds runs")
                )
            files.update((file.resolve(), None) for file in found)
        elif path.exists():
            files[path.resolve()] = None
        else:
            problems.append(Problem(f"no such file or folder: {path}", "check the path"))
    records: list[Record] = []
    for file in files:
        try:
            records += (
                read_collection(file).values() if is_collection(file) else [Record.load(file)]
            )
        except LimbeckError as error:
            problems.extend(error.problems)
    if problems:
        raise LimbeckError(problems)
    if not records:
        raise LimbeckError("no runs were named", "name one or more run folders")
    return records


def _holds_records(file: Path) -> bool:
    return file.name == RECORD_NAME or is_collection(file)
