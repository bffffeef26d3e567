"""Stored outputs mapped into memory, the form that training reads at random. Part of `limbeck.outputs`.

One Arrow file in a folder of the local cache; an example is found by its number in training. A live teacher's pass
writes it (`limbeck.outputs.building`), or it is made of a store that travels, bit for bit (`training_entry`). The pages
belong to the operating system: all processes share them, and only a batch's rows are copied.
"""

import hashlib
import json
import logging
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from limbeck.activations import ActivationKey, Request, Trace
from limbeck.functional.partial_logits import PartialLogits
from limbeck.outputs.cache import SHARD, Store, StoredEntry, default_store, describe
from limbeck.outputs.columns import (
    IDS,
    INDEX,
    LOGITS,
    REST,
    ROW,
    VALUES,
    Masks,
    OutputColumn,
    OutputLayout,
    places,
    whole,
)
from limbeck.outputs.key import digest_of_ids
from limbeck.outputs.store import OutputStore
from limbeck.support.errors import LimbeckError
from limbeck.support.words import human_size

logger = logging.getLogger(__name__)

_FORMAT = 3
_LIMIT = 20 * 2**30
# The approximate size of one piece of the file: a reader maps few of them at a time.
_PIECE_BYTES = 8 * 2**20


class MappedWriter:
    """The file on its way to disk: `add` rows in any order, and leave the block without an error.

    Attributes:
        rows: how many it was given.
        bytes: of their values.

    Args:
        folder: of the entry.
        layout: the columns of outputs.
        row_ids: whether there is a column of rows' ids too.
    """

    def __init__(self, folder: Path, layout: OutputLayout, *, row_ids: bool) -> None:
        self.rows = self.bytes = 0
        self._waiting: list[pa.Table] = []
        self._schema = layout.features(row_ids=row_ids).arrow_schema
        self._file = pa.OSFile(str(folder / SHARD), "wb")
        self._writer = pa.ipc.new_stream(self._file, self._schema)

    def add(self, arrays: Sequence[pa.Array]) -> None:
        """Take in some rows: `index`, `row` if there is one, then the outputs.

        Raises:
            OSError: for example, the disk is full.
        """
        self._waiting.append(pa.table(arrays, schema=self._schema))
        self.rows += len(self._waiting[-1])
        self.bytes += self._waiting[-1].nbytes
        if sum(table.nbytes for table in self._waiting) >= _PIECE_BYTES:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting).combine_chunks())
        self._waiting = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._write()
                self._writer.close()
        finally:
            self._file.close()


class MappedOutputs:
    """An entry of the local cache, by the numbers of its examples; knows of no model.

    Args:
        entry: its folder.
    """

    def __init__(self, entry: StoredEntry) -> None:
        self.entry = entry
        with entry.table.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        table = pa.ipc.open_stream(pa.py_buffer(self._map)).read_all()
        self.columns = {column.name: column for column in entry.outputs.columns}
        self.by_seen = {one.seen: one for one in self.columns.values() if one.seen is not None}
        self.pieces = {
            name: [_StoredPiece(column, part) for part in table.column(name).chunks]
            for name, column in self.columns.items()
        }
        index = table.column(INDEX)
        sizes = [len(part) for part in index.chunks]
        rows = index.to_numpy()
        # The location of each example: (piece, row in it); −1 if it is missing.
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
        tokens = self.entry.outputs.tokens
        of_logits = [LOGITS] if tokens is None else [IDS, VALUES, REST]
        columns = {seen: self._column(self.by_seen.get(seen), seen) for seen in request.items}
        wanted = [*columns.values()]
        if request.logits:
            wanted += [self._column(self.columns.get(name), LOGITS) for name in of_logits]
        found = self._read(wanted, self._places_of(index), masks)
        trace = Trace(
            values={seen: found[column.name] for seen, column in columns.items()},
            logits=found.get(LOGITS) if request.logits else None,
        )
        if request.logits and tokens is not None:
            parts = (found[name] for name in of_logits)
            trace.partial = PartialLogits(tokens.rule, tokens.vocabulary, *parts)
        return trace

    @staticmethod
    def _column(column: OutputColumn | None, seen: ActivationKey | str) -> OutputColumn:
        if column is None:
            raise LimbeckError(
                f"cache: {seen} is not stored", "run with cache=never, and report this"
            )
        return column

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
        self, wanted: list[OutputColumn], where: list[tuple[int, int]], masks: Callable[[], Masks]
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
        if hasattr(self._map, "madvise"):
            # A row of some kilobytes maps a hundred around it. They stay in the system's cache.
            self._map.madvise(mmap.MADV_DONTNEED)
        return found


class _StoredPiece:
    """One column of one piece of the table, as views into the mapped file."""

    def __init__(self, column: OutputColumn, part: pa.Array) -> None:
        values = part.flatten() if column.fixed else part.values
        self._flat = values.to_numpy(zero_copy_only=True)
        self._size = part.type.list_size if column.fixed else 0
        self._ends = None if column.fixed else part.offsets.to_numpy(zero_copy_only=True)

    def value(self, row: int) -> np.ndarray:
        """One example's values, flat: a view."""
        if self._ends is None:
            start, end = row * self._size, (row + 1) * self._size
        else:
            start, end = self._ends[row], self._ends[row + 1]
        found: np.ndarray = self._flat[start:end]
        return found


def training_entry(
    store: OutputStore,
    ids: np.ndarray,
    *,
    columns: Sequence[str] | None = None,
    cache: Store | None = None,
    limit: int = _LIMIT,
) -> StoredEntry:
    """The entry of the local cache that holds a store's outputs of some rows, found or made once.

    Args:
        ids: of the rows in their order in training, int64 (n,): `index` i is `ids[i]`; they may repeat.
        columns: outputs; by default all.
        cache: its folder; the user's own by default.
        limit: bytes that all entries together may take.

    Raises:
        LimbeckError: rows or columns that the store does not hold, a shard that is damaged, or outputs that alone
            take more than the limit.
    """
    cache = cache or default_store()
    own = {column.name: column for column in store.columns}
    unknown = [name for name in columns or () if name not in own]
    if unknown:
        raise LimbeckError(
            f"{store.files.url}: {', '.join(unknown)} is not stored", f"stored: {', '.join(own)}"
        )
    layout = OutputLayout(tuple(own[name] for name in (columns or own)))
    shards = [(shard.name, shard.checksum) for shard in store.manifest.shards]
    about = [_FORMAT, shards, digest_of_ids(ids), [*map(asdict, layout.columns)]]
    key = hashlib.blake2b(json.dumps(about).encode(), digest_size=16).hexdigest()
    found = cache.find(key)
    if found is not None:
        return found
    return cache.made(key, partial(_map_rows, store, ids, layout, limit), limit)[0]


def _map_rows(
    store: OutputStore, ids: np.ndarray, layout: OutputLayout, limit: int, folder: Path
) -> None:
    """Shard by shard; how much room rows of many lengths take shows only then."""
    store.check_rows(ids)
    logger.info("outputs: mapping %d rows of %s into memory, once", len(ids), store.files.url)
    with MappedWriter(folder, layout, row_ids=True) as writer:
        for table in _by_index(store, ids, [column.name for column in layout.columns]):
            writer.add([column.combine_chunks() for column in table.columns])
            if writer.bytes > limit:
                raise LimbeckError(
                    f"{store.files.url}: mapped into memory, the outputs of {len(ids)} rows take "
                    f"more than cache_limit, {human_size(limit)}",
                    "raise cache_limit, take fewer rows, or let limbeck label --outputs store less",
                )
    rows = {"count": len(ids), "fingerprint": digest_of_ids(ids)}
    changes = {
        "keyed": INDEX,
        "row_ids": True,
        "rows": store.manifest.rows.model_copy(update=rows),
        "columns": layout.columns,
        "text": False,
        "labelled": False,
    }
    describe(folder, store.manifest.model_copy(update=changes), rows=len(ids))


def _by_index(store: OutputStore, ids: np.ndarray, columns: list[str]) -> Iterator[pa.Table]:
    """Shard by shard the rows that are wanted, as often as they are, `index` first, then `row`."""
    order = np.argsort(ids, kind="stable")
    wanted = np.asarray(ids, dtype=np.int64)[order]
    for table in store.tables([ROW, *columns]):
        here = table[ROW].to_numpy()
        start, stop = (np.searchsorted(wanted, here, side=side) for side in ("left", "right"))
        times = stop - start
        if not times.any():
            continue
        rows = np.repeat(np.arange(len(here)), times)
        # The k-th use of a row takes the k-th position among those with its id.
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
        index = order[np.repeat(start, times) + nth]
        found = table.select([ROW, *columns]).take(pa.array(rows))
        yield found.add_column(0, INDEX, pa.array(index, pa.int64()))
