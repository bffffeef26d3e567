"""Reading one file of a user's own: CSV, TSV, JSON lines, Parquet or plain text, as plain columns.

Below `own`. Strict, and without guessing types: a csv reader that guesses turns the text "null"
into nothing.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from datasets import ClassLabel, Features

from limbeck.data.candidate_files import holds_candidates, pairs_of
from limbeck.data.column import PIECE, ArrowColumn
from limbeck.data.endings import (
    ARCHIVES,
    TEXT_COLUMN,
    compression_of,
    form_of,
    known_endings,
    lines_of,
    opened_text,
    parquet_file,
)
from limbeck.data.well_formed import batches, well_quoted
from limbeck.support.errors import LimbeckError
from limbeck.support.plain import encodable, json_reason, loads
from limbeck.support.settings import MAX_ROWS

# One field of CSV; longer ones are an open quote rather than text.
_LONGEST_FIELD = 2**28
_BATCH, _BATCH_BYTES = 8192, 1 << 25


@dataclass(frozen=True)
class FileTable:
    """A file's columns, each with a value per row.

    `typed` is false for CSV, TSV and plain text, where every value is text. `class_names` are the names that a
    Parquet file written by the datasets library carries for a column of class ids, or of lists of them.
    """

    path: Path
    columns: Mapping[str, ArrowColumn]
    typed: bool
    class_names: dict[str, list[str]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def named(self, column: str) -> list[Any]:
        """Return a column's values, with the names that the file has for ids in lists.

        Raises:
            LimbeckError: an id that has no name.
        """
        names, values = self.class_names.get(column), self.columns[column].shared()
        if names is None or not any(isinstance(value, list) for value in values):
            return values
        for row, ids in enumerate(values, start=1):
            strange = [one for one in ids or () if one is None or not 0 <= one < len(names)]
            if strange:
                raise LimbeckError(
                    f"{self.path}, row {row}: {column} holds {strange[0]}, and the file names {len(names)} classes",
                    f"write ids from 0 to {len(names) - 1}, or remove the row",
                )
        return [ids and [names[one] for one in ids] for ids in values]


def read_table(
    path: Path, max_rows: int = MAX_ROWS, *, as_pairs: bool = True, as_tsv: bool = False
) -> FileTable:
    """Read a file by its ending (`endings`), or whatever that is as TSV.

    CSV has a header line and the usual double quotes. TSV has a header line and no quoting, as
    GLUE's files. JSON lines have an object per line. Plain text has a text per line, in a column `text`; blank
    lines are no rows. Of a query with lists of candidates (`candidate_files`)
    every pair is a row, unless `as_pairs` is false. Raises
    LimbeckError naming the file, and the line where there is one, for anything that does not fit,
    and for more than `max_rows` rows: a Parquet file of a few kilobytes may hold millions.
    """
    form = "tsv" if as_tsv else form_of(path)
    if form is None:
        raise unknown_ending(path)
    with readable(path):
        if form == "parquet":
            table = _parquet(path, max_rows)
        elif form == "jsonl":
            table = FileTable(path, _json_lines(path, max_rows), typed=True, class_names={})
        else:
            columns = (
                _lines(path, max_rows)
                if form == "text"
                else _separated(path, form == "tsv", max_rows)
            )
            table = FileTable(path, columns, typed=False, class_names={})
    for name, column in table.columns.items():
        if column.text is not None and pc.any(pc.match_substring(column.text, "\0")).as_py():
            raise LimbeckError(
                f"{path}: column {name!r} holds zero characters",
                "the file is damaged: write it again",
            )
    if not len(table):
        if form == "text":
            raise LimbeckError(f"{path} holds no text", "write one text per line")
        raise LimbeckError(f"{path} holds no rows", "check that the right file is named")
    return pairs_in(table) if as_pairs else table


def unknown_ending(path: Path, *more: str) -> LimbeckError:
    """Return the error of a file whose ending says nothing, with all that are known; `more` belong to them."""
    fix = f"known endings: {known_endings(*more)}"
    ending = path.suffix.lower()
    if ending in ARCHIVES:
        fix = f"decompress it; {fix}"
    return LimbeckError(f"{path}: unknown file type {ending or path.name!r}", fix)


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Turn what cannot be read into a LimbeckError that names the file; long fields of CSV are read."""
    try:
        with long_fields():
            yield
    except UnicodeDecodeError as error:
        raise LimbeckError(f"{path} is not UTF-8: {error.reason}", "save it as UTF-8") from error
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0]
        raise LimbeckError(f"cannot read {path}: {reason}", "write the file again") from error
    except OSError as error:
        if error.errno is None and (kind := compression_of(Path(path))) is not None:
            raise LimbeckError(
                f"cannot read {path}: what {kind} compressed is damaged or ends too early ({error})",
                "copy or write the file again",
            ) from error
        raise LimbeckError(
            f"cannot read {path}: {error.strerror or error}",
            "check that it is a file and that you may read it",
        ) from error


def _lines(path: Path, max_rows: int) -> dict[str, ArrowColumn]:
    """The texts of a file with one a line."""
    column = ArrowColumn()
    for line in lines_of(path):
        if line.strip():
            column.append(line)
        if len(column) > max_rows:
            raise _too_many(path, f"more than {max_rows}", max_rows)
    return {TEXT_COLUMN: column}


def pairs_in(table: FileTable) -> FileTable:
    """With a row for every pair of a query and one of its candidates, where the rows are lists of these."""
    if table.typed and holds_candidates([*table.columns]):
        return replace(table, columns=pairs_of(table.columns, table.path))
    return table


def _too_many(path: Path, rows: str, max_rows: int, enough: int | None = None) -> LimbeckError:
    return LimbeckError(
        f"{path} holds {rows} rows, and no more than {max_rows} are read unasked",
        f"{'raise max_rows' if enough is None else f'set max_rows={enough}'} to read them all, or name a file of fewer",
    )


def unique_names(path: Path, names: Iterable[str]) -> list[str]:
    """The names of a table's columns. Raises LimbeckError for one that stands twice."""
    listed = list(names)
    if len(set(listed)) < len(listed):
        raise LimbeckError(
            f"{path}, line 1: two columns have one name: {', '.join(listed)}", "rename one of them"
        )
    return listed


def _separated(path: Path, tabs: bool, max_rows: int) -> dict[str, ArrowColumn]:
    """Columns of text, by the fast reader where it cannot differ from the strict one."""
    with opened_text(path, newline="") as file:
        reader = strict_reader(file, tabs)
        try:
            header = unique_names(path, next(reader, []))
            found = _by_arrow(path, header, tabs, max_rows) if header else None
            return found or _by_rows(path, header, reader, max_rows)
        except csv.Error as error:
            raise LimbeckError(
                f"{path}, line {reader.line_num}: {error}", "fix the quotes of that line"
            ) from error


def strict_reader(file: Iterable[str], tabs: bool) -> Any:
    """Python's reader of CSV, or of TSV without quoting; for what is no CSV it raises `csv.Error`."""
    if tabs:
        return csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    return csv.reader(file, strict=True)


def _by_arrow(
    path: Path, header: list[str], tabs: bool, max_rows: int
) -> dict[str, ArrowColumn] | None:
    """None for a file that the strict reader must see: it names the line, or reads it all the same."""
    if not tabs and not well_quoted(path):
        return None
    columns = {name: ArrowColumn() for name in header}
    rows = 0
    try:
        for batch in batches(path, header, tabs):
            rows += len(batch)
            if rows > max_rows:
                raise _too_many(path, f"more than {max_rows}", max_rows)
            for name, column in columns.items():
                column.extend_arrow(batch.column(name))
    except pa.ArrowException:
        return None
    return columns


def _by_rows(path: Path, header: list[str], reader: Any, max_rows: int) -> dict[str, ArrowColumn]:
    columns = [ArrowColumn() for _ in header]
    rows = 0
    whole = whole_rows(path, header, reader)
    while piece := list(islice(whole, PIECE)):
        rows += len(piece)
        if rows > max_rows:
            raise _too_many(path, f"more than {max_rows}", max_rows)
        for column, values in zip(columns, zip(*piece, strict=True), strict=True):
            column.extend(values)
    return dict(zip(header, columns, strict=True))


def whole_rows(path: Path, header: list[str], reader: Any) -> Iterator[list[str]]:
    """The rows behind a header. Raises LimbeckError with the line for one of another width."""
    for row in reader:
        if len(row) == len(header):
            yield row
        elif row:
            raise LimbeckError(
                f"{path}, line {reader.line_num}: expected {len(header)} columns "
                f"({', '.join(header)}), found {len(row)}",
                "fix the line; in CSV, text with commas or line breaks needs quotes",
            )


@contextmanager
def long_fields() -> Iterator[None]:
    """Python's csv refuses fields of more than 131,072 characters, and documents are longer."""
    usual = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(usual)


def _json_lines(path: Path, max_rows: int) -> dict[str, ArrowColumn]:
    columns: dict[str, ArrowColumn] = {}
    rows = 0
    with opened_text(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            row = json_row(path, number, line)
            if rows == max_rows:
                raise _too_many(path, f"more than {max_rows}", max_rows)
            # A key that some lines leave out is a gap; whether it matters depends on the column.
            for name in row:
                if name not in columns:
                    columns[name] = ArrowColumn([None] * rows)
            for name, column in columns.items():
                column.append(row.get(name))
            rows += 1
    return columns


_LIST = "; of a file that is one list of rows: jq -c '.[]' FILE > rows.jsonl (of {\"data\": […]}: '.data[]')"


def json_row(path: Path, number: int, line: str) -> dict[str, Any]:
    """A line of JSON lines. Raises LimbeckError with its number for what is no object."""
    try:
        row = loads(line)
    except ValueError as error:
        reason = json_reason(error).removeprefix("line 1: ")
        raise LimbeckError(
            f"{path}, line {number}: not JSON: {reason}",
            "write one object per line" + (_LIST if number == 1 else ""),
        ) from error
    if not isinstance(row, dict):
        raise LimbeckError(
            f"{path}, line {number}: expected a JSON object, found {type(row).__name__}",
            'write one object per line: {"text": "…", "label": 1}' + (_LIST if number == 1 else ""),
        )
    only = next(iter(row.values())) if number == len(row) == 1 else None
    if isinstance(only, list) and only and all(isinstance(one, dict) for one in only):
        raise LimbeckError(
            f"{path}, line {number}: its rows are a list inside of one object, {next(iter(row))!r}",
            "write one object per line" + _LIST,
        )
    # Only JSON's escapes can make what UTF-8 cannot hold.
    if "\\u" in line and not encodable(repr(row) + "".join(_texts(row))):
        raise LimbeckError(
            f"{path}, line {number}: half of a surrogate pair or a zero character in the text",
            "write whole characters, as json.dumps does",
        )
    return row


def _texts(value: Any) -> Iterator[str]:
    """All text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _parquet(path: Path, max_rows: int) -> FileTable:
    """Batch by batch: what has been read lies in files that are mapped, and a batch at a time in memory."""
    before = pa.total_allocated_bytes()
    with parquet_file(path) as file:
        rows = file.metadata.num_rows
        if rows > max_rows:
            raise _too_many(path, str(rows), max_rows, rows)
        schema = file.schema_arrow
        names = unique_names(path, schema.names)
        columns = {name: ArrowColumn() for name in names}
        for batch in file.iter_batches(_rows_at_once(file.metadata)):
            # A folder that nobody may write to leaves it all in memory.
            if pa.total_allocated_bytes() - before > _half_the_memory():
                raise LimbeckError(
                    f"{path} needs more than half of this machine's memory",
                    "name a folder that has room for it in the environment, HF_DATASETS_CACHE; or a file of "
                    "fewer rows or shorter text",
                )
            for name in names:
                column = batch.column(name)
                check_text(path, name, column)
                columns[name].extend_arrow(column)
    return FileTable(path, columns, typed=True, class_names=_class_names(schema))


def check_text(path: Path, name: str, values: pa.Array | pa.ChunkedArray) -> None:
    """Raise LimbeckError for text that is not UTF-8: Parquet's writers need not look at it."""
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        reason = str(error).splitlines()[0].removeprefix("Invalid: ")
        raise LimbeckError(
            f"{path}: column {name!r} is damaged or not UTF-8: {reason}",
            "write the file again, its text as UTF-8",
        ) from error


def _rows_at_once(metadata: parquet.FileMetaData) -> int:
    """So many rows that a batch of them is easily held, by the sizes that the file states."""
    groups = range(metadata.num_row_groups)
    size = sum(metadata.row_group(group).total_byte_size for group in groups)
    return min(_BATCH, max(_BATCH_BYTES * metadata.num_rows // max(size, 1), 1))


def stored_classes(path: Path, column: str) -> tuple[str, ...]:
    """Return the names that a Parquet file has for a column's classes, all of them in their order; () without any."""
    if form_of(path) != "parquet":
        return ()
    with readable(path), parquet_file(path) as file:
        return tuple(_class_names(file.schema_arrow).get(column, ()))


def class_columns(path: Path) -> tuple[str, ...]:
    """Return the columns for which a Parquet file has names of classes."""
    if form_of(path) != "parquet":
        return ()
    with readable(path), parquet_file(path) as file:
        return tuple(_class_names(file.schema_arrow))


def _class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """What the datasets library calls the ids of a column of classes, or of lists of them."""
    try:
        features = Features.from_arrow_schema(schema)
    # The schema may hold types that the datasets library does not know; then it has no names.
    except (ValueError, TypeError, KeyError):
        return {}
    each = {column: getattr(feature, "feature", feature) for column, feature in features.items()}
    return {
        column: list(feature.names)
        for column, feature in each.items()
        if isinstance(feature, ClassLabel)
    }


def _half_the_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


# What datasets call their texts, for rows whose columns nobody named.


# One text among other columns of text (an id, a title) is not guessed.
USUAL_TEXTS = (
    ("sentence1", "sentence2"),
    ("query", "passage"),
    ("text1", "text2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("sentence",),
    ("text",),
)
"""Columns that are taken together, in the order in which they are looked for."""

USUAL_LABELS = ("label", "labels")


def usual_texts(words: Sequence[str]) -> list[str]:
    """Choose text columns among those that hold text and no label: of a usual name, else the only one.

    Empty where it is not clear which is meant.
    """
    known = [list(names) for names in USUAL_TEXTS if {*names} <= {*words}]
    return known[0] if known else (list(words) if len(words) == 1 else [])


def usual_label(columns: Sequence[str], named: Sequence[str] = ()) -> str | None:
    """Choose the label's column: of a usual name, else the only one that has class names of its own (`named`)."""
    usual = [name for name in USUAL_LABELS if name in columns]
    return next(iter(usual or (named if len(named) == 1 else [])), None)
