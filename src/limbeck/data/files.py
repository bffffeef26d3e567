"""Files of rows: the formats of their endings, and the rows of a file a few at a time.

Part of `limbeck.data`. Training, `label`, `predict` and scoring all read files here, so that every command reads the
same file the same way. Values stay as they are written: a reader that guesses types turns the text "null" into
nothing.
"""

import csv
import gc
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, BinaryIO, cast

import datasets
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from datasets import ClassLabel, Features
from PIL import Image

from limbeck.support.errors import LimbeckError
from limbeck.support.plain import encodable, json_reason, loads, regular

FORMS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
}
"""The form of a file by its ending."""
FORMATS = ("csv", "tsv", "jsonl", "text", "parquet")
CONLL = (".conll", ".bio", ".iob", ".iob2")
"""Further endings of words with tags, in columns."""
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
"""Compression by the last ending: rows.csv.gz."""
ARCHIVES = (".bz2", ".xz", ".zip", ".7z", ".tar", ".tgz")
"""Endings of formats that are not read here."""
TEXT_COLUMN = "text"
"""Name of the one column of plain text."""
IMAGE_COLUMN = "image"
"""Name of the one column of files that are images."""
STANDARD_INPUT = "-"
_AT_ONCE, _BYTES_AT_ONCE = 8192, 1 << 25
_PIECE = 1 << 20
# One field of CSV; Python's csv allows fewer than 131,072 characters, and documents are longer.
_LONGEST_FIELD = 2**28
# Lines of JSON whose columns are known before any work.
_LOOKED_AT = 100
_PICTURE = datasets.Image()


def known_endings(*more: str) -> str:
    """All endings that are read, as messages list them."""
    return f"{', '.join([*FORMS, *more])}, each also with {' or '.join(COMPRESSED)} behind it"


def form_of(path: Path) -> str | None:
    """Return the form of a file, one of `FORMS`' values; None for an unknown ending."""
    return FORMS.get(ending_of(path))


def ending_of(path: Path) -> str:
    """Return a file's ending in small letters, without the ending of its compression."""
    return _uncompressed(path).suffix.lower()


def stem_of(path: Path) -> str:
    """Return a file's name without its endings: `reviews` of reviews.csv.gz."""
    return _uncompressed(path).stem


def compression_of(path: Path) -> str | None:
    """Return what compressed a file, by its last ending; None if nothing did."""
    return COMPRESSED.get(path.suffix.lower())


def _uncompressed(path: Path) -> Path:
    return path.with_suffix("") if compression_of(path) else path


def opened(path: Path) -> BinaryIO:
    """Open a file for reading its bytes, decompressed.

    Raises:
        LimbeckError: it is no file on disk.
        OSError: it cannot be opened; reading raises it for damaged compression.
    """
    return _decompressed(regular(path).open("rb"), path)


def _decompressed(file: IO[bytes], path: Path) -> BinaryIO:
    kind = compression_of(path)
    if kind is None:
        return cast(BinaryIO, file)
    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(file, mode="r"), kind))


def opened_text(path: Path) -> io.TextIOWrapper:
    r"""Open a file of text in UTF-8, with or without a byte-order mark; lines end at \n alone."""
    return io.TextIOWrapper(opened(path), encoding="utf-8-sig", newline="\n")


def lines_of(path: Path) -> Iterator[str]:
    r"""Yield the lines of a file without their ends, \n or \r\n; any other separator is part of the text."""
    with opened_text(path) as file:
        for line in file:
            yield line.removesuffix("\n").removesuffix("\r")


def parquet_file(path: Path) -> parquet.ParquetFile:
    """Open a Parquet file, mapped. A compressed one is decompressed into a file without a name."""
    if compression_of(path) is None:
        return parquet.ParquetFile(regular(path), memory_map=True)
    with nameless_file(".parquet") as name:
        with opened(path) as packed, name.open("wb") as whole:
            shutil.copyfileobj(packed, whole, _PIECE)
        return parquet.ParquetFile(name, memory_map=True)


@contextmanager
def nameless_file(ending: str) -> Iterator[Path]:
    """Make a file where the datasets library keeps its own, and remove it from its folder afterwards.

    Whoever has mapped it by then can still read it. Nothing is left of it when the process ends, however that ends.

    Raises:
        OSError: it cannot be made there.
    """
    place = Path(datasets.config.HF_DATASETS_CACHE)
    place.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=place, prefix=".limbeck-rows-", suffix=ending)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        with suppress(OSError):
            Path(name).unlink()


def unknown_ending(path: Path, *more: str) -> LimbeckError:
    """Return the error for a file with an unknown ending, with all known ones and `more`."""
    fix = f"rename it by its format; known endings: {known_endings(*more)}"
    ending = path.suffix.lower()
    if ending in ARCHIVES:
        fix = f"decompress it; {fix}"
    return LimbeckError(f"{path}: unknown file type {ending or path.name!r}", fix)


@contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Turn what cannot be read into a LimbeckError that names the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        where = f"{path}{_undecodable_line(Path(path))}"
        raise LimbeckError(f"{where} is not UTF-8: {error.reason}", "save it as UTF-8") from error
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


def _undecodable_line(path: Path) -> str:
    """`, line 4`: the first that is not UTF-8, of a file that can be read again."""
    if not path.is_file():
        return ""
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f", line {number}"
    return ""


# ---- rows that were read ----


class WrittenRows:
    """Rows that were written as JSON, or given as Python objects; a row may lack columns of others."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def names(self) -> list[str]:
        """The columns that any of the rows has."""
        return [*dict.fromkeys(name for row in self._rows for name in row)]

    def values(self, column: str) -> list[Any]:
        """One column; None where a row does not have it."""
        return [row.get(column) for row in self._rows]

    def parts(self, column: str) -> list[Any]:
        """One column as it is stored: lists, or Arrow's arrays."""
        return [self.values(column)]

    def dicts(self, columns: Sequence[str] | None) -> list[dict[str, Any]]:
        """The rows with some columns or all; missing cells are left out."""
        if columns is None:
            return [dict(row) for row in self._rows]
        return [{name: row[name] for name in columns if name in row} for row in self._rows]

    def table(self, columns: Sequence[str] | None) -> pa.Table | None:
        """None: their columns have no types."""
        return None


class ArrowRows:
    """Rows of a Parquet file, or of text in columns."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self._table.column_names)

    def values(self, column: str) -> list[Any]:
        """One column; None where a row does not have it."""
        if column not in self._table.column_names:
            return [None] * len(self)
        found: list[Any] = self._table.column(column).to_pylist()
        return found

    def parts(self, column: str) -> list[Any]:
        """One column as it is stored: lists, or Arrow's arrays."""
        return list(self._table.column(column).chunks)

    def dicts(self, columns: Sequence[str] | None) -> list[dict[str, Any]]:
        """The rows with some columns or all."""
        found: list[dict[str, Any]] = self.table(columns).to_pylist()
        return found

    def table(self, columns: Sequence[str] | None) -> pa.Table:
        """The rows with some columns or all, typed as in their file."""
        if columns is None:
            return self._table
        return self._table.select([name for name in columns if name in self._table.column_names])


TakenRows = WrittenRows | ArrowRows
"""Some rows, one after another, with the columns as they were found."""


# ---- sources of rows ----


class RowSource:
    """One file, or whatever else holds rows, open at the next row.

    Attributes:
        name: as messages call it.
        columns: their names, as far as they are known before all rows are read; () if there are no rows.
        size: the largest `position`; None if it is unknown.
        position: how far it has been read.
        once: whether it cannot be opened a second time.
        at_once: rows that are easily held in memory together.
        typed: whether values have types; without, every value is text.
        class_names: the datasets library's names for the ids of a column of classes, or of lists of them.
    """

    name: str
    columns: tuple[str, ...] = ()
    size: int | None = None
    position: int = 0
    once: bool = False
    at_once: int = _AT_ONCE
    typed: bool = True
    class_names: Mapping[str, list[str]] = MappingProxyType({})

    def take(self, count: int) -> TakenRows:
        """Return the next rows, at most so many; none at the end.

        Raises:
            LimbeckError: the rows cannot be read, with the line.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the file."""


class GivenSource(RowSource):
    """Rows that are in memory already, texts or dictionaries, or that an iterator makes one by one."""

    def __init__(self, name: str, rows: Iterable[Any]) -> None:
        self.name = name
        self.size = len(rows) if isinstance(rows, Sequence) else None
        self._rows = iter(rows)
        self.once = self._rows is rows
        self._number = 0
        first = next(self._rows, None)
        if first is not None or self.size:
            row = self._row(first)
            self._number = 0
            self.columns = tuple(row)
            self._rows = chain([first], self._rows)

    def take(self, count: int) -> TakenRows:
        """Return the next rows."""
        rows = [self._row(row) for row in islice(self._rows, count)]
        self.position += len(rows)
        return WrittenRows(rows)

    def _row(self, row: Any) -> dict[str, Any]:
        self._number += 1
        if isinstance(row, Mapping):
            return {str(name): _stored(value) for name, value in row.items()}
        if row is None or isinstance(row, str):
            return {TEXT_COLUMN: row}
        if isinstance(row, Image.Image):
            return {IMAGE_COLUMN: _stored(row)}
        raise LimbeckError(
            f"{self.name}, row {self._number}: found {type(row).__name__}, expected a text or a dictionary",
            'give texts, or rows {"text": …}',
        )


def _stored(value: Any) -> Any:
    """An opened image by its file's path or bytes, as `datasets.Image` stores it; other values as they are."""
    return _PICTURE.encode_example(value) if isinstance(value, Image.Image) else value


class ParquetSource(RowSource):
    """A Parquet file, a few rows at a time."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        with readable(path):
            self._file = parquet_file(path)
        schema = self._file.schema_arrow
        self.columns = _unique(path, schema.names)
        self.class_names = _class_names(schema)
        self.size = max(path.stat().st_size, 1)
        about = self._file.metadata
        self._total = about.num_rows
        groups = range(about.num_row_groups)
        size = sum(about.row_group(group).total_byte_size for group in groups)
        self.at_once = min(_AT_ONCE, max(_BYTES_AT_ONCE * self._total // max(size, 1), 1))
        self._read = 0
        self._batches = self._file.iter_batches(self.at_once)
        self._left = schema.empty_table()

    def take(self, count: int) -> TakenRows:
        """Return the next rows."""
        with readable(self.name):
            if not len(self._left) and (batch := next(self._batches, None)) is not None:
                self._left = pa.Table.from_batches([batch])
                self._check(self._left)
        taken, self._left = self._left.slice(0, count), self._left.slice(count)
        self._read += len(taken)
        assert self.size is not None
        self.position = self.size * self._read // max(self._total, 1)
        return ArrowRows(taken)

    def _check(self, rows: pa.Table) -> None:
        """Raise LimbeckError for text that is not UTF-8: Parquet's writers need not look at it."""
        for name in self.columns:
            try:
                rows.column(name).validate(full=True)
            except pa.ArrowInvalid as error:
                reason = str(error).splitlines()[0].removeprefix("Invalid: ")
                raise LimbeckError(
                    f"{self.name}: column {name!r} is damaged or not UTF-8: {reason}",
                    "write the file again, its text as UTF-8",
                ) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _class_names(schema: pa.Schema) -> dict[str, list[str]]:
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


class WrittenSource(RowSource):
    """CSV, TSV, JSON lines or plain text, from a file, also a compressed one, or a pipe."""

    def __init__(
        self, name: str, form: str, stream: IO[bytes], *, piped: bool, blank_lines: bool
    ) -> None:
        self.name = name
        self.typed = form == "jsonl"
        self.once = piped
        self.size = None if piped else os.fstat(stream.fileno()).st_size
        self._form, self._blank_lines, self._stream = form, blank_lines, stream
        self._text = io.TextIOWrapper(
            _decompressed(stream, Path(name)),
            encoding="utf-8-sig",
            newline="" if form == "csv" else "\n",
        )
        self._lines = self._rows = 0
        """Read so far; of CSV its reader counts the lines."""
        self._rest: Iterator[Any] = self._text
        try:
            with readable(name):
                self._open()
        except LimbeckError:
            self.close()
            raise

    def _open(self) -> None:
        """Read the columns' names; the rows behind them are left."""
        if self._form == "text":
            first = self._some(1)
            self.columns = (TEXT_COLUMN,) if first else ()
            self._rest = chain(first, self._text)
        elif self._form == "jsonl":
            self._rest = _json_rows(self.name, self._text)
            # Lines may leave columns out; the writer of a pipe may wait for an answer to its first line.
            seen = self._some(1 if self.once else _LOOKED_AT)
            while seen and not any(seen) and (more := self._some(1)):
                seen += more
            self.columns = tuple(dict.fromkeys(name for row in seen for name in row))
            self._rest = chain(seen, self._rest)
        else:
            csv.field_size_limit(_LONGEST_FIELD)
            # Python's own reader, strictly. Arrow's takes `"a"b` for `ab`, loses half of a quoted line break at the
            # border of two blocks, and gives no row of a pipe before a block is full.
            is_csv = self._form == "csv"
            self._rest = csv.reader(self._text, strict=True) if is_csv else _tabbed(self._text)
            header = self._some(1)
            if header and "\0" in "".join(header[0]):
                raise _zero_characters(f"{self.name}, line 1")
            if not header or not header[0]:
                raise LimbeckError(
                    f"{self.name} is empty", "write a header line with the columns' names"
                )
            self.columns, self._lines = _unique(self.name, header[0]), 1

    def _some(self, count: int) -> list[Any]:
        """The next rows. Raises LimbeckError with the line for quotes that CSV does not allow."""
        try:
            return list(islice(self._rest, count))
        except csv.Error as error:
            raise LimbeckError(
                f"{self.name}, line {self._rest.line_num}: {error}",  # type: ignore[attr-defined]
                "fix the quotes of that line",
            ) from error

    def take(self, count: int) -> TakenRows:
        """Return the next rows."""
        with readable(self.name), _no_garbage():
            found: list[Any] = self._some(count) if self.typed else self._columns(count)
        if self.size is not None:
            self.position = self._stream.tell()
        if self.typed:
            return WrittenRows(found)
        arrays = [pa.array(values, pa.string()) for values in found or [()] * len(self.columns)]
        for array in arrays:
            place = pc.index(pc.match_substring(array, "\0"), True).as_py()
            if place >= 0:
                raise _zero_characters(f"{self.name}, row {self._rows + place + 1}")
        self._rows += len(arrays[0]) if arrays else 0
        return ArrowRows(pa.table(arrays, names=list(self.columns)))

    def _columns(self, count: int) -> list[Sequence[str]]:
        """The next rows by column; blank lines of tables are skipped."""
        columns: list[Sequence[str]] = []
        line = getattr(self._rest, "line_num", self._lines)
        while not columns and (found := self._some(count)):
            if self._form == "text":
                texts = [line.removesuffix("\n").removesuffix("\r") for line in found]
                kept = [text for text in texts if self._blank_lines or text.strip()]
                columns = [kept] if kept else []
            else:
                columns = list(zip(*self._whole(found, line), strict=True))
            self._lines += len(found)
            line = getattr(self._rest, "line_num", self._lines)
        return columns

    def _whole(self, rows: list[list[str]], line: int) -> list[list[str]]:
        """The rows behind a line, without blank ones. Raises LimbeckError for one of another width than the header."""
        width = len(self.columns)
        if {*map(len, rows)} == {width}:
            return rows
        for row in rows:
            line += 1 + "".join(row).count("\n")
            if row and len(row) != width:
                raise LimbeckError(
                    f"{self.name}, line {line}: expected {width} columns ({', '.join(self.columns)}), found {len(row)}",
                    "fix the line; in CSV, text with commas or line breaks needs quotes",
                )
        return [row for row in rows if row]

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self._stream is sys.stdin.buffer:
            self._text.detach()
        else:
            self._text.close()
            self._stream.close()


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Let Python not look for garbage among rows, which hold no circles: it takes longer than to read them."""
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if looks:
            gc.enable()


def open_rows(path: Path | str, form: str | None = None, *, blank_lines: bool = True) -> RowSource:
    """Open a file, a pipe or standard input (`-`) at its first row.

    CSV has a header line and the usual double quotes. TSV has a header line and no quoting, as GLUE's files. JSON lines
    have an object per line. Plain text has a text per line, in a column `text`.

    Args:
        path: the file.
        form: one of `FORMATS`; by default the format of the ending.
        blank_lines: whether blank lines of plain text are rows.

    Raises:
        LimbeckError: the format is unknown, or the file cannot be read.
    """
    if path == STANDARD_INPUT:
        return _standard_input(form, blank_lines)
    path = Path(path)
    form = form or form_of(path)
    if form is None:
        raise unknown_ending(path)
    if form == "parquet":
        return ParquetSource(path)
    with readable(path):
        # A pipe that a shell makes, <(command), has no length.
        piped = not path.is_file()
        return WrittenSource(str(path), form, path.open("rb"), piped=piped, blank_lines=blank_lines)


def _standard_input(form: str | None, blank_lines: bool) -> RowSource:
    if form is None or form == "parquet":
        said = "Parquet cannot be streamed" if form else "its format is unknown"
        choices = "|".join(name for name in FORMATS if name != "parquet")
        raise LimbeckError(f"standard input: {said}", f"add --format {choices}")
    if sys.stdin is None or sys.stdin.closed:
        raise LimbeckError("standard input is closed", "pipe rows in, or name a file")
    stream = sys.stdin.buffer
    return WrittenSource("standard input", form, stream, piped=True, blank_lines=blank_lines)


def _zero_characters(where: str) -> LimbeckError:
    return LimbeckError(
        f"{where}: zero characters in the text",
        "the file is damaged, or is not UTF-8: write it again",
    )


def _tabbed(lines: Iterable[str]) -> Iterator[list[str]]:
    bare = (line.rstrip("\r\n") for line in lines)
    return (line.split("\t") if line else [] for line in bare)


def _unique(path: str | Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of a table's columns. Raises LimbeckError for a name that occurs twice."""
    if len(set(names)) < len(names):
        raise LimbeckError(
            f"{path}, line 1: two columns have one name: {', '.join(names)}",
            "rename one of them; if the line is a row, write a line of names above it",
        )
    return tuple(names)


_LIST = "; of a file that is one list of rows: jq -c '.[]' FILE > rows.jsonl (of {\"data\": […]}: '.data[]')"

_CHAT = (
    "write the last two turns as a prompt and its answer, for --kind causal-lm: "
    "jq -c '{prompt: .messages[-2].content, answer: .messages[-1].content}' FILE > rows.jsonl"
)


def _json_rows(name: str, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield an object for each line. Raises LimbeckError with the line's number for a line that is not an object."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where, more = f"{name}, line {number}", _LIST if number == 1 else ""
        try:
            row = loads(line)
        except ValueError as error:
            reason = json_reason(error).removeprefix("line 1: ")
            raise LimbeckError(
                f"{where}: not JSON: {reason}", f"write one object per line{more}"
            ) from error
        if not isinstance(row, dict):
            raise LimbeckError(
                f"{where}: expected a JSON object, found {type(row).__name__}",
                f'write one object per line: {{"text": "…", "label": 1}}{more}',
            )
        only = next(iter(row.values())) if number == len(row) == 1 else None
        if isinstance(only, list) and only and all(isinstance(one, dict) for one in only):
            if "messages" in row:
                raise LimbeckError(f"{where}: a chat ('messages') is not a row of texts", _CHAT)
            raise LimbeckError(
                f"{where}: its rows are a list inside of one object, {next(iter(row))!r}",
                f"write one object per line{more}",
            )
        # Only JSON's escapes can make what UTF-8 cannot hold.
        if "\\u" in line and not all(map(encodable, _texts(row))):
            raise LimbeckError(
                f"{where}: half of a surrogate pair or a zero character in the text",
                "write complete characters, as json.dumps does",
            )
        yield row


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
