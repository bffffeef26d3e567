"""CSV and TSV by Arrow's reader, for files in which it cannot differ from Python's strict one.

Below `tables`. Arrow reads a million rows in a second and without an object for each field, but takes what
the strict reader refuses (`"a"b` is `ab` to it), and says less of where a mistake is. So a file is
looked at first, and whatever is not plainly well-formed is left to the strict reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from limbeck.data.endings import compression_of, opened

_BLOCK = 1 << 23
_QUOTE, _COMMA, _FEED, _RETURN = b'",\n\r'


def well_quoted(path: Path) -> bool:
    """Whether every double quote opens, closes or stands doubled in a quoted field, as RFC 4180 has it.

    Quotes then alternate: the first opens, the second closes, and so on; a doubled one closes and
    opens at once. So each that opens stands at the start of a field or behind one that closes, each that closes
    at the end of a field or before one that opens, and the last one closes. Returns must belong to line breaks
    outside of quotes: what a lone one ends is read in two ways, and of a quoted line break that two blocks
    share Arrow loses half.
    """
    quoted = False
    before = _FEED
    with opened(path) as file:
        piece = file.read(_BLOCK).removeprefix(b"\xef\xbb\xbf")
        while piece:
            after = file.read(_BLOCK)
            found = np.frombuffer(piece, np.uint8)
            # One byte of either neighbour: what stands before and behind each.
            padded = np.concatenate([[before], found, [after[0] if after else _FEED]])
            if not _fits(found, padded, quoted):
                return False
            quoted ^= bool(np.count_nonzero(found == _QUOTE) % 2)
            before, piece = int(found[-1]), after
    return not quoted


def _fits(found: np.ndarray, padded: np.ndarray, quoted: bool) -> bool:
    quotes = np.flatnonzero(found == _QUOTE)
    opening, closing = quotes[int(quoted) :: 2], quotes[int(not quoted) :: 2]
    starts = np.isin(padded[opening], (_QUOTE, _COMMA, _FEED, _RETURN))
    ends = np.isin(padded[closing + 2], (_QUOTE, _COMMA, _FEED, _RETURN))
    if not (starts.all() and ends.all()):
        return False
    returns = np.flatnonzero(found == _RETURN)
    outside = (np.searchsorted(quotes, returns) + quoted) % 2 == 0
    return bool(outside.all() and (padded[returns + 2] == _FEED).all())


def batches(path: Path, header: list[str], tabs: bool) -> Iterator[pa.RecordBatch]:
    """All columns as text, in the order of the file, a few megabytes at a time.

    Raises:
        pa.ArrowException: what the strict reader has better words for, or might read all the same.
    """
    reader = csv.open_csv(
        path if compression_of(path) is None else opened(path),
        read_options=csv.ReadOptions(use_threads=False, block_size=_BLOCK),
        parse_options=csv.ParseOptions(
            delimiter="\t" if tabs else ",",
            quote_char=False if tabs else '"',
            double_quote=not tabs,
            newlines_in_values=not tabs,
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(header, pa.large_string()), strings_can_be_null=False
        ),
    )
    with reader:
        if reader.schema.names != header:
            raise pa.ArrowInvalid("the header is read in two ways")
        yield from reader
