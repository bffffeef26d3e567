"""The table a build writes: rows gathered into pieces, each written beside the passes that follow.

Part of `limbeck.cache`. Writing waits for memory and disk, so it has a thread of its own; one piece
waits at most, and no more than two are in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from math import isfinite, prod
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets.arrow_writer import ArrowWriter
from torch import Tensor

from limbeck.cache.columns import (
    INDEX,
    LARGEST_FLOAT16,
    LOGITS,
    TOKENS,
    Alike,
    Column,
    Layout,
    runs_alike,
    take_tokens,
    to_storage,
)
from limbeck.capture import Trace
from limbeck.errors import LimbeckError

# Of one piece of the table: large enough that a reader holds few of them, small beside the memory.
_PIECE_BYTES = 32 * 2**20
# Examples of the first batch whose rounding is measured.
_LOOKED_AT = 4


class UnstorableError(LimbeckError):
    """The teacher says something that float16 cannot hold."""


class Table:
    """A table on its way to disk; `finish` makes it whole, `close` lets go of it as it is.

    Attributes:
        largest_rounding: what float16 lost of the first examples, relatively.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.layout = layout
        self.largest_rounding = 0.0
        self._writer = ArrowWriter(features=layout.features, path=str(path))
        self._beside = ThreadPoolExecutor(max_workers=1)
        self._written: Future[None] | None = None
        self._piece = _Piece(layout)
        self._begun = False

    def add(self, batch: Mapping[str, Tensor], trace: Trace) -> None:
        """Take in one batch without its padding.

        Raises:
            UnstorableError: a value that float16 cannot hold.
        """
        mask = trace.mask().cpu()
        alike = runs_alike(mask)
        self._piece.begin(batch[INDEX].cpu().numpy())
        for column in self.layout.columns:
            value = column.of(trace)
            stored = to_storage(value, column)
            parts = [stored]
            if not column.fixed:
                parts = [take_tokens(stored[rows], column, own) for rows, own in alike]
                self._piece.note_lengths(column, alike)
            # What stands at padding may be anything; a batch that is finite everywhere is fine.
            if not _all_finite(stored):
                _refuse_infinite(parts, column)
            self._piece.keep(column, parts)
            if not self._begun and column.dtype == "float16":
                few = slice(_LOOKED_AT)
                lost = _rounding(value[few].cpu(), stored[few], mask[few], column)
                self.largest_rounding = max(self.largest_rounding, lost)
        self._begun = True
        if self._piece.bytes >= _PIECE_BYTES:
            self._write()

    def finish(self) -> None:
        """Write what waits; the table is whole afterwards.

        Raises:
            OSError: the disk is full, say.
        """
        if self._piece.bytes:
            self._write()
        self._wait()
        self._writer.finalize()

    def close(self) -> None:
        """Let go of the file, whole or not."""
        self._beside.shutdown()
        self._writer.close()

    def _write(self) -> None:
        table, self._piece = self._piece.table(), _Piece(self.layout)
        self._wait()
        self._written = self._beside.submit(self._writer.write_table, table)

    def _wait(self) -> None:
        if self._written is not None:
            self._written.result()


class _Piece:
    """Rows that wait to be written."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.bytes = 0
        self._index: list[np.ndarray] = []
        self._values: dict[str, list[np.ndarray]] = {column.name: [] for column in layout.columns}
        self._lengths: dict[str, list[int]] = {column.name: [] for column in layout.columns}

    def begin(self, index: np.ndarray) -> None:
        """The examples whose values follow."""
        self._index.append(index)

    def note_lengths(self, column: Column, alike: list[Alike]) -> None:
        """How many values each example has."""
        for rows, own in alike:
            size = prod(column.sizes(own.tokens))
            self._lengths[column.name] += [size] * (rows.stop - rows.start)

    def keep(self, column: Column, parts: list[Tensor]) -> None:
        """The values of a batch."""
        for part in parts:
            values = part.flatten().numpy()
            self._values[column.name].append(values)
            self.bytes += values.nbytes

    def table(self) -> pa.Table:
        """All of it."""
        arrays: list[pa.Array] = [pa.array(np.concatenate(self._index))]
        for column in self.layout.columns:
            values = pa.array(np.concatenate(self._values[column.name]))
            if column.fixed:
                arrays.append(pa.FixedSizeListArray.from_arrays(values, prod(column.sizes(0))))
            else:
                ends = np.cumsum(self._lengths[column.name], dtype=np.int64)
                offsets = pa.array(np.concatenate([[0], ends]))
                arrays.append(pa.LargeListArray.from_arrays(offsets, values))
        return pa.table(arrays, schema=self.layout.features.arrow_schema)


def _all_finite(value: Tensor) -> bool:
    """As `torch.isfinite(value).all()` in one pass without a copy of flags: the largest of NaN and more is NaN."""
    return not value.numel() or isfinite(value.abs().max().item())


def _refuse_infinite(parts: list[Tensor], column: Column) -> None:
    if not all(_all_finite(part) for part in parts):
        raise UnstorableError(
            f"cache: the teacher's {column.seen or LOGITS} is not finite, or beyond float16, "
            f"which ends at {LARGEST_FLOAT16:.0f}",
            "run with cache=never",
        )


def _rounding(value: Tensor, stored: Tensor, mask: Tensor, column: Column) -> float:
    """What float16 loses of real tokens, relatively."""
    difference, value = value.float() - stored.float(), value.float()
    if not column.fixed:
        difference, value = (_real_only(x, mask, column) for x in (difference, value))
    return float(difference.norm() / value.norm().clamp(min=1e-30))


def _real_only(value: Tensor, mask: Tensor, column: Column) -> Tensor:
    """Zero at padding, whatever stands there."""
    for dimension, size in enumerate(column.shape, start=1):
        if size is TOKENS:
            shape = [len(mask)] + [1] * (value.dim() - 1)
            shape[dimension] = mask.shape[1]
            value = value.masked_fill(~mask.view(shape), 0.0)
    return value
