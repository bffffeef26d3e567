"""Rows that are written as text, in a file or a pipe: CSV, TSV, JSON lines, a text a line.

Part of `limbeck.data.streams`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from limbeck.data.endings import TEXT_COLUMN, decompressed
from limbeck.data.streams.row_source import RowSource
from limbeck.data.streams.taken_rows import TakenRows, WrittenRows
from limbeck.data.tables import json_row, readable, strict_reader, unique_names, whole_rows
from limbeck.support.errors import LimbeckError

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
