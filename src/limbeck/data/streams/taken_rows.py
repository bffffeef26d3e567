"""Some rows that were read, whatever they were read from. Part of `limbeck.data.streams`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import pyarrow as pa


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
