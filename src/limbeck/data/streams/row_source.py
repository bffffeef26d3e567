"""What every source of rows does, and what is said of one that cannot be read. Part of `limbeck.data.streams`."""

from __future__ import annotations

from abc import ABC, abstractmethod

from limbeck.data.streams.taken_rows import TakenRows


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
