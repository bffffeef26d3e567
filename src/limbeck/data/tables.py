"""Reading one file of a user's own: CSV, TSV, JSON lines or Parquet, as plain columns.

Below `own`. Strict, and without guessing types: a csv reader that guesses turns the text "null"
into nothing.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from datasets import ClassLabel, Features

from limbeck.errors import LimbeckError, unknown

SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")


@dataclass(frozen=True)
class Table:
    """A file's columns, each with a value per row.

    `typed` is false for CSV and TSV, where every value is text. `class_names` are the names that a
    Parquet file written by the datasets library carries for a column of class ids.
    """

    path: Path
    columns: dict[str, list[Any]]
    typed: bool
    class_names: dict[str, list[str]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))


def read_table(path: Path) -> Table:
    """Read a file by its suffix.

    CSV has a header line and the usual double quotes. TSV has a header line and no quoting, as
    GLUE's files. JSON lines have an object per line. Raises
    LimbeckError naming the file, and the line where there is one, for anything that does not fit.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise LimbeckError(unknown("file type", suffix or path.name, SUFFIXES))
    try:
        if suffix == ".parquet":
            table = _parquet(path)
        elif suffix in (".csv", ".tsv"):
            table = Table(path, _separated(path, suffix == ".tsv"), typed=False, class_names={})
        else:
            table = Table(path, _json_lines(path), typed=True, class_names={})
    except UnicodeDecodeError as error:
        raise LimbeckError(f"{path} is not UTF-8: {error.reason}", "save it as UTF-8") from error
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise LimbeckError(f"cannot read {path}: {reason}", "write the file again") from error
    except OSError as error:
        raise LimbeckError(
            f"cannot read {path}: {error.strerror or error}", "check the file's permissions"
        ) from error
    if not len(table):
        raise LimbeckError(f"{path} holds no rows", "check that the right file is named")
    return table


def _separated(path: Path, tabs: bool) -> dict[str, list[Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        if tabs:
            reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        else:
            reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            if len(set(header)) < len(header):
                raise LimbeckError(
                    f"{path}, line 1: two columns have one name: {', '.join(header)}",
                    "rename one of them",
                )
            rows = []
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise LimbeckError(
                        f"{path}, line {reader.line_num}: expected {len(header)} columns "
                        f"({', '.join(header)}), found {len(row)}",
                        "mend the line; in CSV, text with commas or line breaks needs quotes",
                    )
                rows.append(row)
        except csv.Error as error:
            raise LimbeckError(
                f"{path}, line {reader.line_num}: {error}", "mend the quotes of that line"
            ) from error
    return {name: [row[place] for row in rows] for place, name in enumerate(header)}


def _json_lines(path: Path) -> dict[str, list[Any]]:
    rows: list[dict[str, Any]] = []
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise LimbeckError(
                    f"{path}, line {number}: not JSON: {error.msg}", "write one object per line"
                ) from error
            if not isinstance(row, dict):
                raise LimbeckError(
                    f"{path}, line {number}: expected a JSON object, found {type(row).__name__}",
                    'write one object per line: {"text": "…", "label": 1}',
                )
            rows.append(row)
    # A key that some lines leave out is a gap; whether it matters depends on the column.
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _parquet(path: Path) -> Table:
    table = parquet.read_table(path)
    names = {}
    try:
        features = Features.from_arrow_schema(table.schema)
    # The schema may hold types that the datasets library does not know; then it has no names.
    except (ValueError, TypeError, KeyError):
        features = Features({})
    for column, feature in features.items():
        if isinstance(feature, ClassLabel):
            names[column] = list(feature.names)
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    return Table(path, columns, typed=True, class_names=names)
