"""Texts with their embeddings in a file of the user's own: a teacher of which nothing else is there.

Part of `limbeck.data`. A column `embedding` with a list of numbers in each row, beside the text that it is of, as
`limbeck predict` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from limbeck.data.number_cells import numbers_of, structured
from limbeck.data.row_ids import row_ids
from limbeck.data.tables import FileTable, read_table
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import MAX_ROWS

EMBEDDING = "embedding"
"""The column."""
TEXTS = ("sentence", "text", "query", "passage")
"""What its texts may be called; the first that is there counts."""

# What an embedding of one text may differ by, read in two batches or in bf16.
_ALIKE = 2e-2


class TextEmbeddings(NamedTuple):
    """Embeddings by text.

    Attributes:
        ids: of the texts (`row_ids`), each once, ascending, int64 (n,).
        values: float32 (n, d).
    """

    ids: np.ndarray
    values: np.ndarray


def read_embeddings_file(
    path: Path, named: Sequence[str] = (), max_rows: int = MAX_ROWS
) -> TextEmbeddings | None:
    """Read a file of embeddings; None where it has no column of them.

    Args:
        named: the column of its texts, where it has none of a usual name.

    Raises:
        LimbeckError: no column of texts, embeddings that are no finite numbers or of different widths, or of one
            text several that differ.
    """
    table = read_table(path, max_rows, as_pairs=False)
    if EMBEDDING not in table.columns:
        return None
    column = _text_column(table, named)
    ids = row_ids([list(table.columns[column])])
    return _each_once(path, ids, _embeddings(table))


def _text_column(table: FileTable, named: Sequence[str]) -> str:
    usual = named if len(named) == 1 else TEXTS
    column = next((name for name in usual if name in table.columns), None)
    if column is None:
        raise LimbeckError(
            f"{table.path}: embeddings, and no column {' or '.join(usual)} of the texts that they are of; it has "
            f"{', '.join(table.columns)}",
            f"rename the column of texts: {', '.join(TEXTS)}",
        )
    return column


def _embeddings(table: FileTable) -> np.ndarray:
    """All of them, float32 (n, d)."""
    first = structured(table.columns[EMBEDDING][0])
    width = len(first) if isinstance(first, list) else 0
    if not width:
        raise LimbeckError(
            f"{table.path}, row 1: {EMBEDDING} is {first!r:.80}, expected a list of numbers",
            "write a list of floats in each row",
        )
    found = np.empty((len(table), width), dtype=np.float32)
    start = 0
    for piece in table.columns[EMBEDDING].pieces():
        values = _values(table, piece, width, start)
        found[start : start + len(values)] = values
        start += len(values)
    wrong = ~np.isfinite(found).all(axis=1)
    if wrong.any():
        raise LimbeckError(
            f"{table.path}, row {int(wrong.argmax()) + 1}: {EMBEDDING} holds a number that is not finite "
            f"({int(wrong.sum())} of {len(found)} rows)",
            "leave these rows out",
        )
    return found


def _values(table: FileTable, piece: pa.Array | list[Any], width: int, start: int) -> np.ndarray:
    """The embeddings of a piece of the column (m, d), whose first row is the file's `start`."""
    if isinstance(piece, pa.Array) and _is_dense(piece, width):
        return piece.flatten().to_numpy(zero_copy_only=False).reshape(len(piece), width)
    rows = piece.to_pylist() if isinstance(piece, pa.Array) else piece
    return numbers_of(table, EMBEDDING, [structured(row) for row in rows], width, start)


def _is_dense(piece: pa.Array, width: int) -> bool:
    """Whether each row is a list of so many floats."""
    kind = piece.type
    if pa.types.is_fixed_size_list(kind):
        same = kind.list_size == width
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = piece.value_lengths().to_numpy(zero_copy_only=False)
        same = bool((lengths == width).all())
    else:
        return False
    known = not piece.null_count and not piece.flatten().null_count
    return same and known and pa.types.is_floating(kind.value_type)


def _each_once(path: Path, ids: np.ndarray, values: np.ndarray) -> TextEmbeddings:
    """Ids ascending, with their embeddings; of a text that stands twice the first."""
    found, first, place = np.unique(ids, return_index=True, return_inverse=True)
    again = np.flatnonzero(first[place] != np.arange(len(ids)))
    kept = values[first[place[again]]]
    apart = np.linalg.norm(values[again] - kept, axis=1) > _ALIKE * np.linalg.norm(kept, axis=1)
    if apart.any():
        one = int(again[apart.argmax()])
        raise LimbeckError(
            f"{path}, row {one + 1}: the text of row {int(first[place[one]]) + 1} again, with another embedding "
            f"({int(apart.sum())} such rows)",
            "keep one of them",
        )
    return TextEmbeddings(found, values[first])
