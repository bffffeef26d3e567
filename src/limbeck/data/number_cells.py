"""Numbers in the cells of a user's file: one, a list, or text that says so. Part of `limbeck.data`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np

from limbeck.data.tables import FileTable
from limbeck.support.errors import LimbeckError
from limbeck.support.plain import loads


def structured(value: Any) -> Any:
    """A cell of CSV that is a list or a mapping is written as in JSON."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return loads(value)
        except ValueError:
            return value
    return value


def row_of_numbers(row: Any, *, typed: bool) -> Iterator[float | None]:
    """The numbers of a list; None for what is none, and for a row that is no list.

    Args:
        typed: text is no number, as in JSON lines and Parquet.
    """
    for value in row if isinstance(row, list | tuple) else [None]:
        if isinstance(value, str) and not typed:
            try:
                yield float(value)
            except ValueError:
                yield None
        else:
            number = isinstance(value, int | float) and not isinstance(value, bool)
            yield float(cast(float, value)) if number else None


def numbers_of(
    table: FileTable, what: str, rows: list[Any], width: int, start: int = 0
) -> np.ndarray:
    """Lists of numbers as float64 (n, width).

    Args:
        what: the rows are called, for messages.
        start: the place of the first of them in the file.

    Raises:
        LimbeckError: a row is no list of so many numbers.
    """
    found = np.empty((len(rows), width))
    for place, row in enumerate(rows):
        numbers = list(row_of_numbers(row, typed=table.typed))
        if len(numbers) != width or None in numbers:
            raise LimbeckError(
                f"{table.path}, row {start + place + 1}: {what} are {row!r:.120}, expected {width} "
                f"number{'s' * (width != 1)}",
                "fill the gap, or leave the row out",
            )
        found[place] = numbers
    return found
