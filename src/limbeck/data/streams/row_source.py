"""What every source of rows does, and what is said of one that cannot be read. Part of `limbeck.data.streams`."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from limbeck.data.streams.taken_rows import TakenRows
from limbeck.data.tables import long_fields
from limbeck.errors import LimbeckError


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


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Long fields of CSV are read, and what cannot be read is a LimbeckError."""
    try:
        with long_fields():
            yield
    except UnicodeDecodeError as error:
        raise LimbeckError(f"{name} is not UTF-8: {error.reason}", "save it as UTF-8") from error
    except pa.ArrowException as error:
        raise LimbeckError(
            f"cannot read {name}: {str(error).splitlines()[0]}", "write the file again"
        ) from error
    except (zlib.error, EOFError) as error:
        raise LimbeckError(
            f"cannot read {name}: what gzip compressed is damaged or ends too early",
            "copy or write the file again",
        ) from error
    except OSError as error:
        raise LimbeckError(
            f"cannot read {name}: {error.strerror or error}",
            "check that it is a file and that you may read it",
        ) from error
