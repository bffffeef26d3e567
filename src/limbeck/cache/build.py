"""One pass of the teacher over all rows, written as it goes. Part of `limbeck.cache`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from math import isfinite, prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from datasets.arrow_writer import ArrowWriter
from torch import Tensor

from limbeck.cache.columns import (
    INDEX,
    LARGEST_FLOAT16,
    LOGITS,
    TOKENS,
    Ask,
    Column,
    Layout,
    places,
    take_tokens,
    to_storage,
)
from limbeck.cache.store import TABLE, describe
from limbeck.capture import Request, Trace, token_mask
from limbeck.errors import LimbeckError
from limbeck.teachers import Teacher

# Of one piece of the table: large enough that a reader holds few of them, small beside the memory.
_PIECE_BYTES = 32 * 2**20
# Examples of the first batch whose rounding is measured.
_LOOKED_AT = 4
Batches = Iterable[Mapping[str, Tensor]]


class UnstorableError(LimbeckError):
    """The teacher says something that float16 cannot hold."""


def build(
    folder: Path,
    teacher: Teacher,
    batches: Batches,
    wanted: Ask,
    *,
    precision: str,
    about: dict[str, Any],
    advance: Callable[[int], None] = lambda examples: None,
) -> None:
    """Write the teacher's answers about every example of `batches` into `folder`.

    Args:
        batches: with `index`; sorted by length they hold least padding.
        precision: fp32 or bf16: the autocast type the run's own passes would have.
        about: what the entry says of itself beside its size and the largest rounding error.
        advance: called with the number of examples done since the last call.

    Raises:
        UnstorableError: a value that float16 cannot hold.
    """
    began = time.perf_counter()
    writer: ArrowWriter | None = None
    pieces = _Pieces()
    try:
        for batch in batches:
            trace = ask(teacher, batch, wanted.request, precision)
            if writer is None:
                pieces.layout = Layout.of(trace, wanted)
                writer = ArrowWriter(features=pieces.layout.features, path=str(folder / TABLE))
            pieces.add(batch, trace)
            if pieces.bytes >= _PIECE_BYTES:
                writer.write_table(pieces.table())
            advance(len(batch[INDEX]))
        if writer is None:
            raise LimbeckError("there are no rows to ask the teacher about", "check the data")
        if pieces.bytes:
            writer.write_table(pieces.table())
        writer.finalize()
    finally:
        if writer is not None:
            writer.close()
    seconds = time.perf_counter() - began
    own = {"seconds": seconds, "largest_rounding": pieces.largest_rounding}
    describe(folder, about | own | {"columns": pieces.layout.written()})


def ask(teacher: Teacher, batch: Mapping[str, Tensor], request: Request, precision: str) -> Trace:
    """The live teacher's answers as a run of this precision would get them."""
    device = teacher.device.type
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        trace = teacher(batch, request)
    if "main" not in trace.masks:  # of images whose layers nobody looks at
        trace.masks["main"] = token_mask(teacher.model, batch)
    return trace


class _Pieces:
    """Rows that wait to be written."""

    def __init__(self) -> None:
        self.layout = Layout(())
        self.bytes = 0
        self.largest_rounding = 0.0
        self.begun = False
        self._index: list[np.ndarray] = []
        self._values: dict[str, list[np.ndarray]] = {}
        self._lengths: dict[str, list[int]] = {}

    def add(self, batch: Mapping[str, Tensor], trace: Trace) -> None:
        """Take in one batch without its padding."""
        first_batch = not self.begun
        self.begun = True
        self._index.append(batch[INDEX].cpu().numpy())
        mask = trace.mask().cpu()
        firsts, counts = places(mask)
        for column in self.layout.columns:
            value = column.of(trace)
            stored = to_storage(value, column)
            if column.fixed:
                parts = [stored]
            elif min(counts) == mask.shape[1]:  # no padding, nothing to cut
                parts = [stored]
                self._note_lengths(column, counts)
            else:
                rows = zip(stored, firsts, counts, strict=True)
                parts = [take_tokens(row, column, first, count) for row, first, count in rows]
                self._note_lengths(column, counts)
            # What stands at padding may be anything; a batch that is finite everywhere is fine.
            if not _all_finite(stored):
                _refuse_infinite(parts, column)
            for part in parts:
                self._keep(column, part)
            if first_batch and column.dtype == "float16":
                few = slice(_LOOKED_AT)
                self._note_rounding(value[few].cpu(), stored[few], mask[few], column)

    def _note_lengths(self, column: Column, counts: list[int]) -> None:
        sizes = [prod(column.sizes(count)) for count in counts]
        self._lengths.setdefault(column.name, []).extend(sizes)

    def _keep(self, column: Column, part: Tensor) -> None:
        values = part.flatten().numpy()
        self._values.setdefault(column.name, []).append(values)
        self.bytes += values.nbytes

    def _note_rounding(self, value: Tensor, stored: Tensor, mask: Tensor, column: Column) -> None:
        """What float16 loses of real tokens, relatively."""
        difference, value = value.float() - stored.float(), value.float()
        if not column.fixed:
            difference, value = (_real_only(x, mask, column) for x in (difference, value))
        lost = float(difference.norm() / value.norm().clamp(min=1e-30))
        self.largest_rounding = max(self.largest_rounding, lost)

    def table(self) -> pa.Table:
        """What waits, as a table; afterwards nothing does."""
        arrays: list[pa.Array] = [pa.array(np.concatenate(self._index))]
        for column in self.layout.columns:
            values = pa.array(np.concatenate(self._values[column.name]))
            if column.fixed:
                arrays.append(pa.FixedSizeListArray.from_arrays(values, prod(column.sizes(0))))
            else:
                ends = np.cumsum(self._lengths[column.name], dtype=np.int64)
                offsets = pa.array(np.concatenate([[0], ends]))
                arrays.append(pa.LargeListArray.from_arrays(offsets, values))
        self._index, self._values, self._lengths, self.bytes = [], {}, {}, 0
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


def _real_only(value: Tensor, mask: Tensor, column: Column) -> Tensor:
    """Zero at padding, whatever stands there."""
    for dimension, size in enumerate(column.shape, start=1):
        if size is TOKENS:
            shape = [len(mask)] + [1] * (value.dim() - 1)
            shape[dimension] = mask.shape[1]
            value = value.masked_fill(~mask.view(shape), 0.0)
    return value
