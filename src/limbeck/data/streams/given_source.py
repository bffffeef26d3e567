"""Rows that are in memory, or that somebody makes. Part of `limbeck.data.streams`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from limbeck.data.endings import TEXT_COLUMN
from limbeck.data.streams.row_source import RowSource
from limbeck.data.streams.taken_rows import TakenRows, WrittenRows
from limbeck.support.errors import LimbeckError


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
