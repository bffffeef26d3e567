"""Which row is which, wherever it is read: an id from what a row says. Part of `limbeck.data`.

Stored teacher outputs are found again by these ids in another file, another order or on another machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from limbeck.support.errors import LimbeckError

# Stands between texts: no UTF-8 text holds this byte.
_SEPARATOR = b"\xff"
_BYTES = 8
# The sign bit stays free: ids are positive int64 in every library.
_MASK = (1 << 63) - 1


def row_ids(columns: Sequence[Sequence[str]]) -> np.ndarray:
    """The ids of some rows, int64 (n,), from their input texts: a 63-bit blake2b digest of each.

    Rows of equal texts share an id, as a teacher's outputs for them are equal. Names of columns, files and splits
    play no part; the order of the columns does.

    Args:
        columns: the text columns in the task's order, each with the text of every row.

    Raises:
        LimbeckError: no columns, columns of different lengths, or a value that is no text.
    """
    sizes = {len(column) for column in columns}
    if len(sizes) != 1:
        raise LimbeckError(
            f"row ids: {len(columns)} text columns of {sorted(sizes)} rows",
            "give at least one text column, all of one length",
        )
    found = (_id_of(texts) for texts in zip(*columns, strict=True))
    return np.fromiter(found, dtype=np.int64, count=sizes.pop())


def _id_of(texts: Sequence[str]) -> int:
    try:
        content = _SEPARATOR.join(text.encode() for text in texts)
    except (AttributeError, UnicodeEncodeError):
        raise LimbeckError(
            f"row ids: {texts!r:.120} is not one text for each column", "fill the gaps with text"
        ) from None
    digest = hashlib.blake2b(content, digest_size=_BYTES).digest()
    return int.from_bytes(digest, "big") & _MASK
