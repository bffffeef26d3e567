"""A digest of rows that were read, by which a start knows those of an earlier one. Part of `limbeck.predicting`."""

from __future__ import annotations

from collections.abc import Sequence

import xxhash

from limbeck.data.stream import RowStream
from limbeck.data.stream_sources import TakenRows
from limbeck.predicting.partial_output import ChunkRecord


class RowsDigest:
    """Of all rows so far, with all their columns."""

    def __init__(self) -> None:
        self._digest = xxhash.xxh3_128()

    def add(self, rows: TakenRows) -> None:
        """The next rows."""
        for row in rows.dicts(None):
            self._digest.update(repr(row).encode("utf-8", "surrogatepass"))

    def __str__(self) -> str:
        """In hexadecimal digits."""
        return self._digest.hexdigest()


def first_difference(
    stream: RowStream, records: Sequence[ChunkRecord], digest: RowsDigest
) -> tuple[int, int] | None:
    """Read over the rows that were read before; the first place (from, to) at which they are others, else None.

    Args:
        stream: at its first row; behind those of the records afterwards.
        records: in the order of the rows.
        digest: of no rows yet; of those of the records afterwards.
    """
    first = 0
    for record in records:
        left = record.rows
        while left and (rows := stream.take(left)) is not None:
            digest.add(rows)
            left -= len(rows)
        if left or str(digest) != record.digest:
            return first, first + record.rows
        first += record.rows
    return None
