"""Stored outputs read at random, a batch's examples at a time. Part of `limbeck.teachers.outputs`.

The table is mapped into memory and read through views: its pages belong to the operating system,
are shared by all processes, and are not copied but for the rows of a batch. After each batch the
process lets go of those it has touched, so that they are not counted as its own either.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from math import prod
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from limbeck.activations import ActivationKey, Request, Trace
from limbeck.functional.partial_logits import PartialLogits
from limbeck.support.errors import LimbeckError
from limbeck.teachers.outputs.columns import IDS, INDEX, LOGITS, REST, VALUES, OutputColumn
from limbeck.teachers.outputs.places import Masks, places, whole
from limbeck.teachers.outputs.store import StoredEntry


class MappedOutputs:
    """An entry of the store, by the numbers of its examples; knows of no model.

    Args:
        entry: where it lies.
    """

    def __init__(self, entry: StoredEntry) -> None:
        self.entry = entry
        layout = entry.outputs.layout
        self._map = _mapped(entry.table)
        table = pa.ipc.open_stream(pa.py_buffer(self._map)).read_all()
        # The logits are under None; what else has no place in a model is asked for by its name.
        self.by_seen = {
            column.seen: column
            for column in layout.columns
            if column.seen is not None or column.name == LOGITS
        }
        self.by_name = {column.name: column for column in layout.columns}
        self.pieces = {
            column.name: [_StoredPiece(column, part) for part in table.column(column.name).chunks]
            for column in layout.columns
        }
        index = table.column(INDEX)
        sizes = [len(part) for part in index.chunks]
        rows = index.to_numpy()
        # Where each example lies: (piece, row in it); −1 where it does not.
        self._place = np.full((int(rows.max()) + 1, 2), -1, dtype=np.int32)
        self._place[rows, 0] = np.repeat(np.arange(len(sizes)), sizes)
        self._place[rows, 1] = np.concatenate([np.arange(size) for size in sizes])

    def trace(self, request: Request, index: Tensor, masks: Callable[[], Masks]) -> Trace:
        """What `request` asks for, of some examples, as it is stored: float16 or float32, on CPU.

        Args:
            index: the examples' numbers, (B,).
            masks: which tokens of the batch are real, by stack; called where a row has as many values as tokens.

        Raises:
            LimbeckError: an example, or a thing to look at, that is not stored, or other lengths than were stored.
        """
        columns = [self._column_of(seen) for seen in request.items]
        tokens = self.entry.outputs.tokens
        if request.logits and tokens is None:
            columns.append(self._column_of(None))
        elif request.logits and tokens is not None:
            columns += [self.by_name[name] for name in (IDS, VALUES, REST)]
        found = self._read(columns, self._places_of(index), masks)
        trace = Trace(
            values={seen: found[self.by_seen[seen].name] for seen in request.items},
            logits=found.get(LOGITS) if request.logits else None,
        )
        if request.logits and tokens is not None:
            parts = (found[name] for name in (IDS, VALUES, REST))
            trace.partial = PartialLogits(tokens.rule, tokens.vocabulary, *parts)
        return trace

    def _release_pages(self) -> None:
        # A row of some kilobytes maps a hundred around it. They stay in the system's cache, from
        # where touching them again is cheap.
        if hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def _column_of(self, seen: ActivationKey | None) -> OutputColumn:
        try:
            return self.by_seen[seen]
        except KeyError:
            raise LimbeckError(
                f"cache: {seen or LOGITS} is not stored", "run with cache=never, and report this"
            ) from None

    def _places_of(self, index: Tensor) -> list[tuple[int, int]]:
        rows = index.cpu().numpy()
        known = (rows >= 0) & (rows < len(self._place))
        found = self._place[np.where(known, rows, 0)]
        missing = ~known | (found[:, 0] < 0)
        if missing.any():
            raise LimbeckError(
                f"cache: no outputs for example {rows[missing][0]} are stored",
                "run with cache=never, or remove the entry: limbeck outputs clear",
            )
        return [(piece, row) for piece, row in found.tolist()]

    def _read(
        self,
        wanted: list[OutputColumn],
        where: list[tuple[int, int]],
        masks: Callable[[], Masks],
    ) -> dict[str, Tensor]:
        of_batch: Masks = {} if all(column.fixed for column in wanted) else masks()
        owns = places(of_batch) if of_batch else []
        found = {}
        for column in wanted:
            pieces = self.pieces[column.name]
            stored = [pieces[piece].value(row) for piece, row in where]
            if column.fixed:
                joined = torch.from_numpy(np.stack(stored))
                found[column.name] = joined.view(len(stored), *column.sizes())
                continue
            # Widened later, all rows together: numpy widens float16 number by number.
            into = np.zeros((len(stored), *column.sizes(whole(of_batch))), dtype=column.dtype)
            # Many examples of a batch have one length.
            room = {own: (column.sizes(own), column.among_padding(own)) for own in set(owns)}
            for row, (flat, own) in enumerate(zip(stored, owns, strict=True)):
                shape, place = room[own]
                if flat.size != prod(shape):
                    raise LimbeckError(
                        "cache: an example has another length than when its outputs were stored",
                        "remove the entry: limbeck outputs clear",
                    )
                into[row][place] = flat.reshape(shape)
            found[column.name] = torch.from_numpy(into)
        self._release_pages()
        return found


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class _StoredPiece:
    """One column of one piece of the table, as views into the mapped file."""

    def __init__(self, column: OutputColumn, part: pa.Array) -> None:
        if column.fixed:
            size = part.type.list_size
            self._flat = part.flatten().to_numpy(zero_copy_only=True)
            self._ends: np.ndarray | None = None
            self._size = size
        else:
            self._flat = part.values.to_numpy(zero_copy_only=True)
            self._ends = part.offsets.to_numpy(zero_copy_only=True)
            self._size = 0

    def value(self, row: int) -> np.ndarray:
        """One example's values, flat: a view."""
        if self._ends is None:
            return self._flat[row * self._size : (row + 1) * self._size]
        return self._flat[self._ends[row] : self._ends[row + 1]]
