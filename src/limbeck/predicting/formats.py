"""Predicted rows as JSON lines, CSV or a table for Parquet. Part of `limbeck.predicting`.

JSON and Parquet hold lists and structs; in CSV, values for each class become a column for each class, lists
are JSON in their cell, and embeddings raise an error.
"""

import base64
import csv
import datetime
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from limbeck.data.files import TakenRows
from limbeck.records.facts import finite
from limbeck.support.errors import LimbeckError

Types = Mapping[str, pa.DataType]
"""Predicted columns, by the names they are written under."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet would execute."""
_BY_CLASS = {"probabilities": "probability_", "logits": "logit_"}


def merged(
    rows: TakenRows, keep: Sequence[str] | None, columns: Mapping[str, list[Any]]
) -> list[dict[str, Any]]:
    """The rows with their kept columns, then their predictions.

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
    return _utf8("".join(_json(dict(row)) + "\n" for row in rows))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise LimbeckError(
            "a column's text holds half of a surrogate pair, which UTF-8 cannot hold",
            "write complete characters, or leave the column out with --keep",
        ) from None


def _json(value: Any) -> str:
    """A value as JSON, which has no NaN and no infinity: they become null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except ValueError:
        return json.dumps(finite(value), ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """What JSON has no form for."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


# ---- CSV ----


class CsvForm:
    """The header and the lines of a CSV file.

    Args:
        kept: the user's columns.
        types: the predicted ones, by the names they are written under.
        prefix: of these names.
        safe: write an apostrophe before text that a spreadsheet would run as a formula.

    Attributes:
        header: the names of all columns.
    """

    def __init__(
        self, kept: Sequence[str], types: Types, prefix: str = "", *, safe: bool = False
    ) -> None:
        self._safe = safe
        self._known = {*kept, *types}
        self._places: list[tuple[str, str | None]] = [(name, None) for name in kept]
        self.header = [*kept]
        for name, kind in types.items():
            begins = _BY_CLASS.get(name.removeprefix(prefix))
            if begins is None or not pa.types.is_struct(kind):
                self._places.append((name, None))
                self.header.append(name)
            else:
                self._places += [(name, field.name) for field in kind]
                self.header += [f"{prefix}{begins}{field.name}" for field in kind]

    def head(self) -> bytes:
        """The header line."""
        return self._written([[self._cell(name) for name in self.header]])

    def lines(self, rows: Sequence[Mapping[str, Any]]) -> bytes:
        """A line a row.

        Raises:
            LimbeckError: a row has a column that the header has not.
        """
        new = {name for row in rows for name in row} - self._known
        if new:
            raise LimbeckError(
                f"a line has columns that the first one has not, and CSV has one header: {', '.join(sorted(new))}",
                "name the columns that are wanted with --keep, or write JSON lines",
            )
        return self._written(
            [self._cell(_part(row.get(name), part)) for name, part in self._places] for row in rows
        )

    def _cell(self, value: Any) -> str:
        formula = self._safe and isinstance(value, str) and value.startswith(_FORMULA)
        return f"'{value}" if formula else _cell(value)

    def _written(self, lines: Iterable[Sequence[str]]) -> bytes:
        return _utf8("".join(map(_line, lines)))


def _part(value: Any, name: str | None) -> Any:
    return value if name is None or value is None else value[name]


def _line(cells: Sequence[str]) -> str:
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
        return _json(value)
    return repr(value) if isinstance(value, int | float) else str(_plain(value))


# ---- Parquet ----


def row_table(
    rows: TakenRows, keep: Sequence[str] | None, columns: Mapping[str, list[Any]], types: Types
) -> pa.Table:
    """Rows with their predictions, the kept columns typed as in their file or as their values are.

    Raises:
        LimbeckError: a row has a column of a prediction's name.
    """
    kept = rows.table(keep)
    if kept is None:
        values = rows.dicts(keep)
        names = dict.fromkeys(name for row in values for name in row)
        kept = pa.table({name: _array([row.get(name) for row in values]) for name in names})
    if both := {*kept.column_names} & {*columns}:
        raise clash(both)
    found = dict(zip(kept.column_names, kept.columns, strict=True))
    for name, values in columns.items():
        # A column without any value in this chunk has no type yet.
        there = any(value is not None for value in values)
        found[name] = pa.array(values, types[name] if there else pa.null())
    return pa.table(found)


def _array(values: list[Any]) -> pa.Array:
    """Values of one type as they are, of several as text; objects may be empty, which Parquet cannot hold."""
    try:
        found = pa.array(values)
    except UnicodeEncodeError:
        _utf8("".join(one for one in values if isinstance(one, str)))
        raise
    except (pa.ArrowException, OverflowError):
        return _as_text(values)
    return (
        _as_text(values)
        if pa.types.is_nested(found.type) and "struct" in str(found.type)
        else found
    )


def _as_text(values: Iterable[Any]) -> pa.Array:
    """Text as it is, other values as JSON."""
    texts = [one if one is None or isinstance(one, str) else _json(one) for one in values]
    return pa.array(texts, pa.string())


def common_schema(schemas: Sequence[pa.Schema], types: Types) -> pa.Schema:
    """One for all chunks: types that differ are widened, or become text; predicted columns come last."""
    found: dict[str, pa.DataType] = {}
    for schema in schemas:
        for field in schema:
            found[field.name] = _wider(found.get(field.name, pa.null()), field.type)
    for name, kind in types.items():
        there = found.pop(name, pa.null())
        found[name] = kind if pa.types.is_null(there) else there
    return pa.schema([*found.items()])


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    schemas = [pa.schema([("column", kind)]) for kind in (one, other)]
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
        if pa.types.is_string(field.type) and not pa.types.is_large_string(column.type):
            column = _as_text(column.to_pylist()) if column.type != field.type else column
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowException:
            columns.append(pa.array(column.to_pylist(), field.type))
    return pa.table(columns, schema=schema)
