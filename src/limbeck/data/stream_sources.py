"""What every source of rows does, and what is said of one that cannot be read. Part of `limbeck.data`."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from limbeck.data.endings import TEXT_COLUMN, decompressed, form_of, known_endings, parquet_file
from limbeck.data.files import (
    check_text,
    json_row,
    readable,
    strict_reader,
    unique_names,
    whole_rows,
)
from limbeck.data.unlabelled import matching
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home, no_such_file

# Which files are named, and what form their endings say they have.


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


# Some rows that were read, whatever they were read from.


class TakenRows(ABC):
    """Some rows, one after another, with the columns as they were found."""

    @abstractmethod
    def __len__(self) -> int:
        """How many."""

    @abstractmethod
    def values(self, column: str) -> list[Any]:
        """One column; None where a row does not have it."""

    @abstractmethod
    def dicts(self, columns: Sequence[str] | None) -> list[dict[str, Any]]:
        """The rows as JSON has them, with some columns or all; what a row does not have is left out."""

    @abstractmethod
    def table(self, columns: Sequence[str] | None) -> pa.Table | None:
        """The same as Arrow's table where the rows came as one; else None."""


class WrittenRows(TakenRows):
    """Rows that were written as text, or given as Python objects."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def values(self, column: str) -> list[Any]:
        """One column; None where a row does not have it."""
        return [row.get(column) for row in self._rows]

    def dicts(self, columns: Sequence[str] | None) -> list[dict[str, Any]]:
        """The rows with some columns or all."""
        if columns is None:
            return [dict(row) for row in self._rows]
        return [{name: row[name] for name in columns if name in row} for row in self._rows]

    def table(self, columns: Sequence[str] | None) -> pa.Table | None:
        """None: their columns have no types."""
        return None


class ArrowRows(TakenRows):
    """Rows of a Parquet file."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def values(self, column: str) -> list[Any]:
        """One column; None where a row does not have it."""
        if column not in self._table.column_names:
            return [None] * len(self)
        return self._table.column(column).to_pylist()

    def dicts(self, columns: Sequence[str] | None) -> list[dict[str, Any]]:
        """The rows with some columns or all."""
        return self.table(columns).to_pylist()

    def table(self, columns: Sequence[str] | None) -> pa.Table:
        """The rows with some columns or all, typed as in their file."""
        return self._table if columns is None else self._table.select(list(columns))


class RowSource(ABC):
    """One file, or whatever else holds rows, open at the next row.

    Attributes:
        name: as messages call it.
        columns: their names, as far as they are known before all rows are read; () where there are no rows.
        size: how far `position` goes; None where nobody knows.
        position: how far it has been read.
    """

    name: str
    columns: tuple[str, ...]
    size: int | None = None
    position: int = 0
    once: bool = False
    """Whether it cannot be opened a second time."""

    @abstractmethod
    def take(self, count: int) -> TakenRows:
        """The next rows, at most so many; none at the end.

        Raises:
            LimbeckError: what stands there cannot be read, with the line.
        """

    def close(self) -> None:  # noqa: B027  rows in memory have no file
        """Close the file."""


# Rows that are in memory, or that somebody makes.


class GivenSource(RowSource):
    """Rows that are in memory already, texts or dictionaries, or that somebody makes one by one."""

    def __init__(self, name: str, rows: Iterable[Any]) -> None:
        self.name = name
        self.size = len(rows) if isinstance(rows, Sequence) else None
        self._rows = iter(rows)
        self.once = self._rows is rows
        self._number = 0
        first = next(self._rows, None)
        self.columns = ()
        if first is not None or self.size:
            row = self._row(first)
            self._number = 0
            self.columns = tuple(row)
            self._rows = chain([first], self._rows)

    def take(self, count: int) -> TakenRows:
        """The next rows."""
        rows = [self._row(row) for row in islice(self._rows, count)]
        self.position += len(rows)
        return WrittenRows(rows)

    def _row(self, row: Any) -> dict[str, Any]:
        self._number += 1
        if isinstance(row, Mapping):
            return {str(name): value for name, value in row.items()}
        if row is None or isinstance(row, str):
            return {TEXT_COLUMN: row}
        raise LimbeckError(
            f"{self.name}, row {self._number}: found {type(row).__name__}, expected a text or a dictionary",
            'give texts, or rows {"text": …}',
        )


# Rows of a Parquet file.


class ParquetSource(RowSource):
    """A Parquet file, a few rows at a time."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        with readable(self.name):
            self._file = parquet_file(path)
        names = self._file.schema_arrow.names
        self.columns = tuple(unique_names(path, names))
        self.size = max(path.stat().st_size, 1)
        self._total = max(self._file.metadata.num_rows, 1)
        self._read = 0
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._left: pa.Table | None = None

    def take(self, count: int) -> TakenRows:
        """The next rows."""
        with readable(self.name):
            if self._batches is None:
                self._batches = self._file.iter_batches(max(min(count, 65_536), 1))
                self._left = self._file.schema_arrow.empty_table()
            assert self._left is not None
            parts, rows = [self._left], len(self._left)
            while rows < count:
                batch = next(self._batches, None)
                if batch is None:
                    break
                parts.append(pa.Table.from_batches([batch]))
                rows += len(batch)
        whole = pa.concat_tables(parts)
        for name in self.columns:
            check_text(Path(self.name), name, whole.column(name))
        taken, self._left = whole.slice(0, count), whole.slice(count)
        self._read += len(taken)
        assert self.size is not None
        self.position = self.size * self._read // self._total
        return ArrowRows(taken)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


# Rows that are written as text, in a file or a pipe: CSV, TSV, JSON lines, a text a line.


# Lines of JSON whose columns are known before any work.
_LOOKED_AT = 100


class CountedFile(io.FileIO):
    """A file that knows how much of it was read, whoever buffers it."""

    read_bytes = 0

    def readinto(self, buffer: Any) -> int | None:
        """As any raw file, counted."""
        found = super().readinto(buffer)
        self.read_bytes += found or 0
        return found


class WrittenSource(RowSource):
    """CSV, TSV, JSON lines or plain text, from a file, also a compressed one, or a pipe."""

    def __init__(self, name: str, kind: str, stream: BinaryIO, size: int | None) -> None:
        self.name = name
        self.size = size
        self.once = size is None
        self._counted = stream if isinstance(stream, CountedFile) else None
        self._text = io.TextIOWrapper(
            stream if self._counted is None else _buffered(self._counted, name),
            encoding="utf-8-sig",
            newline="" if kind in ("csv", "tsv") else "\n",
        )
        self._rows: Iterator[dict[str, Any]] = iter(())
        try:
            with readable(name):
                self._open(kind)
        except LimbeckError:
            self.close()
            raise

    def _open(self, kind: str) -> None:
        path = Path(self.name)
        if kind in ("csv", "tsv"):
            self.columns, self._rows = _separated(path, self._text, kind == "tsv")
            return
        rows = _json(path, self._text) if kind == "jsonl" else _lines(self.name, self._text)
        # Lines of JSON may leave columns out; whoever writes to a pipe may wait for an answer to its first line.
        first = list(islice(rows, 1 if self.once else _LOOKED_AT))
        while first and not any(first) and (row := next(rows, None)) is not None:
            first.append(row)
        self.columns = tuple(dict.fromkeys(name for row in first for name in row))
        self._rows = chain(first, rows)

    def take(self, count: int) -> TakenRows:
        """The next rows."""
        with readable(self.name):
            rows = list(islice(self._rows, count))
        if self._counted is not None:
            self.position = self._counted.read_bytes
        return WrittenRows(rows)

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self._counted is not None:
            self._text.close()
            self._counted.close()
        else:
            self._text.detach()


def _buffered(file: CountedFile, name: str) -> BinaryIO:
    """What was written, before it was compressed."""
    return decompressed(io.BufferedReader(file), Path(name))


def _separated(
    path: Path, text: io.TextIOWrapper, tabs: bool
) -> tuple[tuple[str, ...], Iterator[dict[str, Any]]]:
    reader = strict_reader(text, tabs)
    try:
        header = unique_names(path, next(reader, []))
    except csv.Error as error:
        raise LimbeckError(f"{path}, line 1: {error}", "fix the quotes of that line") from error
    if not header:
        raise LimbeckError(f"{path} is empty", "write a header line with the columns' names")
    return tuple(header), _csv_rows(path, header, reader)


def _csv_rows(path: Path, header: list[str], reader: Any) -> Iterator[dict[str, Any]]:
    try:
        for row in whole_rows(path, header, reader):
            if any("\0" in value for value in row):
                raise _zero_characters(str(path), reader.line_num)
            yield dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise LimbeckError(
            f"{path}, line {reader.line_num}: {error}", "fix the quotes of that line"
        ) from error


def _json(path: Path, text: io.TextIOWrapper) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text, start=1):
        if line.strip():
            yield json_row(path, number, line)


def _lines(name: str, text: io.TextIOWrapper) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text, start=1):
        if "\0" in line:
            raise _zero_characters(name, number)
        yield {TEXT_COLUMN: line.removesuffix("\n").removesuffix("\r")}


def _zero_characters(name: str, line: int) -> LimbeckError:
    return LimbeckError(
        f"{name}, line {line}: zero characters in the text",
        "the file is damaged, or is not UTF-8: write it again",
    )
