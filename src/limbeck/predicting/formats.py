"""Predicted rows as JSON lines, CSV or a table for Parquet. Part of `limbeck.predicting`.

JSON and Parquet hold lists and structs; in CSV what has a number for each class becomes a column for each class, lists
are JSON in their cell, and embeddings are refused.
"""

from __future__ import annotations

import base64
import csv
import datetime
import decimal
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from limbeck.data.files import TakenRows
from limbeck.predicting.readers import LOGITS, PROBABILITIES
from limbeck.support.errors import LimbeckError

Types = Mapping[str, pa.DataType]
"""Predicted columns, by the names they are written under."""
SEPARATED = ("csv", "tsv")
"""Forms with a header line."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_BY_CLASS = {PROBABILITIES: "probability_", LOGITS: "logit_"}


def merged(
    rows: TakenRows, keep: Sequence[str] | None, columns: Mapping[str, list[Any]]
) -> list[dict[str, Any]]:
    """The rows with what is kept of them, then their predictions.

    Raises:
        LimbeckError: a row has a column of a prediction's name, which is known of JSON lines only when it comes.
    """
    found = rows.dicts(keep)
    for name, values in columns.items():
        for row, value in zip(found, values, strict=True):
            if name in row:
                raise clash([name])
            row[name] = value
    return found


def clash(names: Iterable[str]) -> LimbeckError:
    """Rows that have columns of the predictions' names."""
    return LimbeckError(
        f"the rows have columns of the predictions' names already: {', '.join(sorted(names))}",
        "write the predictions under others with --prefix, or keep other columns with --keep",
    )


# ---- JSON lines ----


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """An object a line."""
    return _utf8("".join(json_text(dict(row)) + "\n" for row in rows))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _half_a_character() from None


def _half_a_character() -> LimbeckError:
    return LimbeckError(
        "a column's text holds half of a surrogate pair, which UTF-8 cannot hold",
        "write whole characters, or leave the column out with --keep",
    )


def json_text(value: Any) -> str:
    """A value as JSON, which has no NaN and no infinity: they become null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """What JSON has no form for."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.timedelta | decimal.Decimal):
        return str(value)
    raise LimbeckError(
        f"a column holds a {type(value).__name__}, which JSON and CSV cannot hold",
        "leave the column out with --keep, or write Parquet",
    )


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


# ---- CSV ----


class CsvForm:
    """The header and the lines of a CSV or TSV file.

    Args:
        kept: the user's columns.
        types: the predicted ones, by the names they are written under.
        prefix: of these names.
        tabs: TSV, in which tabs and line breaks become spaces, as it has no quotes.
        safe: write an apostrophe before text that a spreadsheet would run as a formula.
    """

    def __init__(
        self,
        kept: Sequence[str],
        types: Types,
        prefix: str = "",
        *,
        tabs: bool = False,
        safe: bool = False,
    ) -> None:
        self._kept, self._types, self._prefix = list(kept), types, prefix
        self._tabs, self._safe = tabs, safe

    @property
    def header(self) -> list[str]:
        """The names of all columns."""
        names = list(self._kept)
        for name, kind in self._types.items():
            part = self._part(name, kind)
            names += [name] if part is None else [f"{part}{field.name}" for field in kind]
        return names

    def _part(self, name: str, kind: pa.DataType) -> str | None:
        """What the columns begin with that one with a number for each class becomes."""
        begins = _BY_CLASS.get(name.removeprefix(self._prefix))
        return f"{self._prefix}{begins}" if begins and pa.types.is_struct(kind) else None

    def head(self) -> bytes:
        """The header line."""
        return self._written([[self._cell(name) for name in self.header]])

    def lines(self, rows: Iterable[Mapping[str, Any]]) -> bytes:
        """A line a row."""
        return self._written(map(self._cells, rows))

    def _cells(self, row: Mapping[str, Any]) -> list[str]:
        cells = [self._cell(row.get(name)) for name in self._kept]
        for name, kind in self._types.items():
            value = row.get(name)
            if self._part(name, kind) is None:
                cells.append(self._cell(value))
            else:
                cells += [self._cell((value or {}).get(field.name)) for field in kind]
        return cells

    def _cell(self, value: Any) -> str:
        formula = self._safe and isinstance(value, str) and value.startswith(_FORMULA)
        return f"'{value}" if formula else _cell(value)

    def _written(self, lines: Iterable[Sequence[str]]) -> bytes:
        as_line = _tab_line if self._tabs else _comma_line
        return _utf8("".join(map(as_line, lines)))


def _tab_line(cells: Sequence[str]) -> str:
    return "\t".join(" ".join(cell.splitlines()).replace("\t", " ") for cell in cells) + "\n"


def _comma_line(cells: Sequence[str]) -> str:
    text = io.StringIO(newline="")
    # The writer quotes what holds a part of its line's end. A carriage return must be quoted, or readers see two rows.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | list | dict | np.ndarray):
        return json_text(value)
    if isinstance(value, int | float):
        return repr(value)
    return str(_plain(value))


# ---- Parquet ----


def row_table(
    rows: TakenRows,
    keep: Sequence[str] | None,
    columns: Mapping[str, list[Any]],
    types: Types,
) -> pa.Table:
    """Rows with their predictions, the kept columns typed as in their file or as their values are.

    Raises:
        LimbeckError: a row has a column of a prediction's name.
    """
    kept = rows.table(keep)
    found = (
        _arrays(rows.dicts(keep))
        if kept is None
        else dict(zip(kept.column_names, kept.columns, strict=True))
    )
    both = found.keys() & columns.keys()
    if both:
        raise clash(both)
    for name, values in columns.items():
        found[name] = pa.array(values, types[name])
    return pa.table(found) if found else pa.table({}, schema=pa.schema([]))


def _arrays(rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: _array([row.get(name) for row in rows]) for name in names}


def _array(values: list[Any]) -> pa.Array:
    try:
        found = pa.array(values)
    except UnicodeEncodeError:
        raise _half_a_character() from None
    except (pa.ArrowException, OverflowError):
        return as_text(values)
    return as_text(values) if _has_empty_struct(found.type) else found


def as_text(values: Iterable[Any]) -> pa.Array:
    """Values of several types: text as it is, others as JSON."""
    texts = [
        value if value is None or isinstance(value, str) else json_text(value) for value in values
    ]
    return pa.array(texts, pa.string())


def _has_empty_struct(kind: pa.DataType) -> bool:
    """Parquet cannot hold one."""
    if pa.types.is_struct(kind):
        return kind.num_fields == 0 or any(_has_empty_struct(field.type) for field in kind)
    return pa.types.is_list(kind) and _has_empty_struct(kind.value_type)


def common_schema(schemas: Sequence[pa.Schema], types: Types) -> pa.Schema:
    """One for all chunks: types that differ are widened, or become text; predicted columns come last."""
    found: dict[str, list[pa.DataType]] = {}
    for schema in schemas:
        for field in schema:
            found.setdefault(field.name, []).append(field.type)
    kept = [(name, _common_type(kinds)) for name, kinds in found.items() if name not in types]
    predicted = []
    for name, kind in types.items():
        # What a chunk found its rows to be is better known than what a start without rows thinks.
        filled = [one for one in found.get(name, ()) if not pa.types.is_null(one)]
        predicted.append((name, _common_type(filled) if filled else kind))
    return pa.schema([*kept, *predicted])


def _common_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    schemas = [pa.schema([("column", kind)]) for kind in dict.fromkeys(kinds)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field("column").type
    except pa.ArrowException:
        return pa.string()


def with_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A chunk with the columns and types of all."""
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(len(table), field.type))
            continue
        column = table.column(field.name)
        columns.append(column if column.type == field.type else _as_type(column, field.type))
    return pa.table(columns, schema=schema)


def _as_type(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if pa.types.is_string(kind) and not _is_text(column.type):
        return as_text(column.to_pylist())
    try:
        return column.cast(kind)
    except pa.ArrowException:
        return pa.array(column.to_pylist(), kind)


def _is_text(kind: pa.DataType) -> bool:
    found: bool = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return found
