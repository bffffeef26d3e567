"""The records of many runs in one compressed file: a study to keep, to send, or to commit.

Gzipped JSON lines, one run a line as `{"name": …, "record": {…}}`, sorted by name. The same
records always make the same bytes.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from limbeck.reporting.records.record import RECORD_NAME, Record
from limbeck.support.errors import LimbeckError
from limbeck.support.files import write_whole
from limbeck.support.plain import read_json

SUFFIX = ".jsonl.gz"


def is_collection(path: Path) -> bool:
    """Whether a path is named as a file of many records."""
    return path.name.endswith(SUFFIX)


def read_collection(path: str | Path) -> dict[str, Record]:
    """Every record of the file, by the run's name.

    A record's `path` is where its run folder would lie below the file.

    Raises:
        LimbeckError: no such file, not compressed JSON lines, or a line that is no record.
    """
    return {
        name: Record.of(content, Path(path) / name / RECORD_NAME)
        for name, content in _lines(Path(path))
    }


def read_raw(path: Path) -> dict[str, dict[str, Any]]:
    """As `read_collection`, as plain JSON; empty where there is no file yet."""
    return dict(_lines(path)) if path.exists() else {}


def write_collection(path: Path, records: Mapping[str, Mapping[str, Any]]) -> None:
    """Write plain JSON records by name, whole or not at all.

    Raises:
        LimbeckError: the place is not writable.
    """
    lines = (
        json.dumps({"name": name, "record": records[name]}, ensure_ascii=False, allow_nan=False)
        for name in sorted(records)
    )
    text = "".join(f"{line}\n" for line in lines)
    # Without a time stamp, so that unchanged records are an unchanged file.
    write_whole(path, gzip.compress(text.encode(), compresslevel=9, mtime=0))


def _lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as stream:
            for number, line in enumerate(stream, start=1):
                yield _named(line, path, number)
    except FileNotFoundError:
        raise LimbeckError(f"no records at {path}", "name a file of records") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise LimbeckError(
            f"cannot read {path}: {error}", f"name a {SUFFIX} file that limbeck wrote"
        ) from None


def _named(line: str, path: Path, number: int) -> tuple[str, dict[str, Any]]:
    try:
        # Other writers' NaN and Infinity read as "no number", as in a single record.
        content = read_json(line, f"{path}, line {number},", constant=lambda _: None)
        return str(content["name"]), content["record"]
    except (TypeError, KeyError):
        raise LimbeckError(
            f"{path}, line {number}, is no named record",
            f"name a {SUFFIX} file that limbeck wrote, or take the line out",
        ) from None
