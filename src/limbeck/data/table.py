"""A file of rows as a table: its columns, whose text is kept in a file if there is much of it.

Part of `limbeck.data`. A million strings take ten times the room as Python objects that they take in a file.
"""

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from limbeck.data.files import form_of, nameless_file, open_rows
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.plain import regular
from limbeck.support.words import count_of

LARGE = 1 << 24
"""Bytes of a column that may stay in memory together."""
_TEXT = pa.large_string()


class ArrowColumn:
    """Values in their order; text, and values from Arrow, are packed, other values stay Python's objects."""

    def __init__(self, values: Sequence[Any] = ()) -> None:
        self._pieces: list[pa.Array | list[Any]] = []
        self._lately: list[pa.Array] = []
        """The last pieces, as far as they are Arrow's, of one type and in memory."""
        if values:
            self.extend(values)

    def extend(self, values: Sequence[Any] | pa.Array) -> None:
        """Add values at the end; best a few thousand at a time."""
        if not isinstance(values, pa.Array):
            text = all(value is None or isinstance(value, str) for value in values)
            values = pa.array(values, _TEXT) if text else list(values)
        elif pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if isinstance(values, pa.Array) and _may_be_text(values.type):
            values = values.cast(_TEXT)
        self._add(values)

    def _add(self, piece: pa.Array | list[Any]) -> None:
        self._pieces.append(piece)
        if isinstance(piece, list):
            self._lately = []
            return
        if self._lately and self._lately[-1].type != piece.type:
            self._lately = []
        self._lately.append(piece)
        if sum(one.nbytes for one in self._lately) > LARGE:
            self._pieces[-len(self._lately) :] = [_off_memory(self._lately)]
            self._lately = []
            del piece
            # To the system, not to Arrow's own store for later.
            pa.default_memory_pool().release_unused()

    def __len__(self) -> int:
        return sum(map(len, self._pieces))

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(map(_listed, self._pieces))

    def pieces(self) -> Iterator[pa.Array | list[Any]]:
        """The values in parts, as they are stored: Arrow's arrays, or lists of Python objects."""
        yield from self._pieces

    def shared(self) -> list[Any]:
        """All values, with one object for a text that is in many rows of a piece."""
        found: list[Any] = []
        for piece in self._pieces:
            if isinstance(piece, list) or piece.type != _TEXT:
                found += _listed(piece)
            else:
                coded = piece.dictionary_encode()
                texts = [*coded.dictionary.to_pylist(), None]
                found += [
                    texts[-1 if place is None else place] for place in coded.indices.to_pylist()
                ]
        return found

    def __getitem__(self, row: int) -> Any:
        for piece in self._pieces:
            if row < len(piece):
                return piece[row].as_py() if isinstance(piece, pa.Array) else piece[row]
            row -= len(piece)
        raise IndexError(row)

    @property
    def text(self) -> pa.ChunkedArray | None:
        """All of it as Arrow text; None where a value is no text."""
        found = self.text_or_gaps
        return None if found is None or found.null_count else found

    @property
    def text_or_gaps(self) -> pa.ChunkedArray | None:
        """As `text`, with Arrow's null where a value is None."""
        if any(isinstance(piece, list) or piece.type != _TEXT for piece in self._pieces):
            return None
        return pa.chunked_array(self._pieces, _TEXT)


def _listed(piece: pa.Array | list[Any]) -> list[Any]:
    return piece if isinstance(piece, list) else piece.to_pylist()


def _may_be_text(kind: pa.DataType) -> bool:
    of_text = pa.types.is_string, pa.types.is_string_view, pa.types.is_null
    return any(is_it(kind) for is_it in of_text)


def _off_memory(pieces: Sequence[pa.Array]) -> pa.Array:
    """The same values, of one type, in one array whose bytes are in a file, or in memory if no file can be made."""
    joined = pa.concat_arrays(pieces)
    batch = pa.record_batch([joined], ["values"])
    try:
        with nameless_file(".arrow") as name:
            with pa.OSFile(str(name), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
                writer.write_batch(batch)
            with pa.memory_map(str(name)) as source:
                return pa.ipc.open_file(source).get_batch(0).column(0)
    except OSError:  # a full disk, or a folder without write permission
        return joined


def taken(values: Sequence[Any] | pa.ChunkedArray, rows: Sequence[int] | np.ndarray) -> Any:
    """The chosen rows, of Arrow's text without making Python objects of the others."""
    if isinstance(values, pa.ChunkedArray) and values.type == _TEXT and _ascend(rows):
        return _sieved(values, np.asarray(rows))
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.take(pa.array(rows, pa.int64()))
    return [values[row] for row in rows]


def _ascend(rows: Sequence[int] | np.ndarray) -> bool:
    return bool((np.diff(np.asarray(rows)) > 0).all())


def _sieved(values: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray | None:
    """Chunk by chunk: to take from all of them Arrow would join them first."""
    chosen = np.zeros(len(values), dtype=bool)
    chosen[rows] = True
    found, start = ArrowColumn(), 0
    for chunk in values.chunks:
        found.extend(chunk.filter(pa.array(chosen[start : start + len(chunk)])))
        start += len(chunk)
    return found.text_or_gaps


# ---- tables ----


@dataclass(frozen=True)
class FileTable:
    """A file's columns, each with a value per row.

    `typed` is false for CSV, TSV and plain text, where every value is text. `class_names` are the names that a
    Parquet file written by the datasets library carries for a column of class ids, or of lists of them.
    """

    path: Path
    columns: Mapping[str, ArrowColumn]
    typed: bool
    class_names: Mapping[str, list[str]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    @property
    def words(self) -> list[str]:
        """The columns that hold text, and maybe gaps."""
        texts = ((name, column.text_or_gaps) for name, column in self.columns.items())
        return [name for name, one in texts if one is not None and one.null_count < len(one)]

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

    def need(self, names: Sequence[str], kind: str = "column", fix: str = "") -> None:
        """Raise LimbeckError for columns that are not there (`missing`)."""
        if problem := self.missing(names, kind, fix):
            raise LimbeckError(problem)

    def missing(self, names: Sequence[str], kind: str = "column", fix: str = "") -> Problem | None:
        """Say which columns are not there (`missing_columns`); None where all are."""
        return missing_columns(self.path, self.columns, names, kind, fix)

    def text(
        self,
        name: str,
        *,
        gaps: bool = False,
        blank: bool = True,
        fix: str = "fill the gap, remove the row, or name another column",
    ) -> pa.ChunkedArray:
        """Return a column of text.

        Args:
            name: of the column, which is there.
            gaps: whether a value may be None, which comes out as "".
            blank: whether a text may be blank.
            fix: what to do about another value.

        Raises:
            LimbeckError: a value that is no such text, with its row.
        """
        column = self.columns[name]
        found = column.text_or_gaps
        if found is None or not blank or (found.null_count and not gaps):
            wrong = [
                (row, value)
                for row, value in enumerate(column, start=1)
                if not (isinstance(value, str) and (blank or value.strip()))
                and not (gaps and value is None)
            ]
            for row, value in wrong[:1]:
                others = f"; {count_of(len(wrong) - 1, 'other row')} too" if wrong[1:] else ""
                raise LimbeckError(
                    f"{self.path}, row {row}: {name} is {value!r:.80}, expected text{others}", fix
                )
        return pc.fill_null(found, "") if found is not None and found.null_count else found

    def texts(self, name: str, **which: Any) -> list[str]:
        """Return a column of text (`text`) as Python's strings."""
        return list(self.text(name, **which).to_pylist())

    def numbers(
        self, name: str, *, gaps: bool = False, least: float = -math.inf, fix: str
    ) -> list[float]:
        """Return a column of finite numbers, with NaN for a gap.

        Args:
            name: of the column, which is there.
            gaps: whether a value may be None or blank.
            least: the smallest number.
            fix: what to do about another value.

        Raises:
            LimbeckError: a value that is no such number, with its row.
        """
        found = []
        for row, value in enumerate(self.columns[name], start=1):
            if gaps and value in (None, ""):
                found.append(math.nan)
                continue
            number = finite(value)
            if number is None or number < least:
                raise LimbeckError(
                    f"{self.path}, row {row}: {name} is {value!r:.60}, expected a number", fix
                )
            found.append(number)
        return found


def finite(value: Any) -> float | None:
    """Return a finite number that a value is or is written as; None of any other."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def read_table(path: Path) -> FileTable:
    """Read a file by its ending; blank lines of plain text are no rows.

    Raises:
        LimbeckError: what does not fit, with the file, and the line where there is one; no rows.
    """
    source = open_rows(regular(path), blank_lines=False)
    plain = form_of(path) == "text"
    columns: dict[str, ArrowColumn] = {}
    count = 0
    try:
        while len(rows := source.take(source.at_once)):
            for name in rows.names:
                # A gap in the rows before; whether it matters depends on the column.
                if name not in columns:
                    columns[name] = ArrowColumn([None] * count)
            for name, column in columns.items():
                for part in rows.parts(name):
                    column.extend(part)
            count += len(rows)
    finally:
        source.close()
    table = FileTable(path, columns, source.typed, source.class_names)
    if not len(table):
        raise LimbeckError(
            f"{path} holds no {'text' if plain else 'rows'}",
            "write one text per line" if plain else "check that the right file is named",
        )
    return table


# ---- which columns hold text and label ----


def missing_columns(
    source: object, there: Iterable[str], names: Sequence[str], kind: str = "column", fix: str = ""
) -> Problem | None:
    """The problem of columns that a source lacks, with columns of similar names; None if all exist.

    Args:
        source: of the rows, for the message.
        there: names of its columns.
        names: of the columns that are wanted.
        kind: the word for them in the message.
        fix: the fix, which a list of existing columns follows.
    """
    columns = [*there]
    lacking = [name for name in names if name not in columns]
    if not lacking:
        return None
    near = (difflib.get_close_matches(name, columns, n=1) for name in lacking)
    found = ", ".join(repr(one) for matches in near for one in matches)
    said = f"columns that are there: {', '.join(columns)}"
    parts = [f"did you mean {found}?" * bool(found), f"{fix};" * bool(fix), said]
    return Problem(
        f"{source} has no {kind} {', '.join(map(repr, lacking))}",
        " ".join(part for part in parts if part),
    )


def miscounted_texts(names: Sequence[str], low: int, high: int, reader: str = "") -> Problem | None:
    """Say that other than `low` to `high` text columns are named, or one twice; None where they fit.

    `reader` is the model or task type that decides how many.
    """
    if low <= len(names) <= high and len({*names}) == len(names):
        return None
    wanted = str(low) if low == high else f"{low} or {high}"
    return Problem(
        f"{len(names)} text columns are named: {', '.join(names)}"
        + (f"; {reader} reads {wanted} of a row" if reader else ""),
        f"name {wanted}, each once, in the order in which they are read",
    )


_LONGEST_NAME = 5  # words


def unnamed_texts(table: FileTable) -> Problem:
    """The problem of a table whose text columns are not given, and not clear."""
    fix = f"--text-columns A [B]; columns of {table.path.name}: {', '.join(table.columns)}"
    if sentences := [name for name in table.columns if len(name.split()) > _LONGEST_NAME]:
        return Problem(
            f"the first line of {table.path.name} is read as the names of its columns: {sentences[0]!r:.60}",
            f"if it is a row, write a line of names above it, such as text; otherwise {fix}",
        )
    return Problem("no text columns are named", fix)


# One text among other columns of text (an id, a title) is not guessed.
USUAL_TEXTS = (
    ("sentence1", "sentence2"),
    ("query", "passage"),
    ("text1", "text2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "context"),
    ("sentence",),
    ("text",),
)
"""Columns that are taken together, in the order in which they are looked for."""

USUAL_LABELS = ("label", "labels")


def usual_texts(words: Iterable[str], label: str | None = None) -> list[str]:
    """Choose text columns, without the label's: the ones with a usual name, otherwise the only column with text.

    Empty where it is not clear which is meant.
    """
    texts = [name for name in words if name != label]
    known = [list(names) for names in USUAL_TEXTS if {*names} <= {*texts}]
    return known[0] if known else (texts if len(texts) == 1 else [])


def usual_label(columns: Sequence[str], named: Sequence[str] = ()) -> str | None:
    """Choose the label's column: the one with a usual name, otherwise the only one with class names (`named`)."""
    usual = [name for name in USUAL_LABELS if name in columns]
    return next(iter(usual or (named if len(named) == 1 else [])), None)
