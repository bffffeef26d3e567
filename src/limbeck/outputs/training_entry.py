"""From a store that travels to an entry that training reads at random, bit for bit.

Part of `limbeck.outputs`. An entry is found again by the store's content and the rows, so it is made once.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets.arrow_writer import ArrowWriter

from limbeck.outputs.cache import (
    FOLDER_VARIABLE,
    SHARD,
    Store,
    StoredEntry,
    default_store,
    describe,
)
from limbeck.outputs.columns import INDEX, ROW, OutputColumn, OutputLayout
from limbeck.outputs.key import digest_of_ids
from limbeck.outputs.store import OutputStore
from limbeck.support.errors import LimbeckError
from limbeck.support.files import is_full
from limbeck.support.words import human_size

logger = logging.getLogger(__name__)

_FORMAT = 3
_LIMIT = 20 * 2**30


def training_entry(
    store: OutputStore,
    ids: np.ndarray,
    *,
    columns: Sequence[str] | None = None,
    cache: Store | None = None,
    limit: int = _LIMIT,
) -> StoredEntry:
    """The entry of the local cache that holds a store's outputs of some rows, found or made.

    Args:
        ids: of the rows in their order in training, int64 (n,): `index` i is `ids[i]`; they may repeat.
        columns: outputs; by default all.
        cache: where it lies; the user's own by default.
        limit: bytes that all entries together may take.

    Raises:
        LimbeckError: rows or columns that the store does not hold, a shard that is damaged, or outputs that alone
            take more than the limit.
    """
    cache = cache or default_store()
    chosen = _chosen(store, columns)
    key = _key(store, ids, chosen)
    entry = cache.find(key)
    if entry is not None:
        return entry
    with cache.lock(key):
        # Another process may have made it while this one waited.
        entry = cache.find(key)
        if entry is None:
            store.check_rows(ids)
            cache.sweep()
            logger.info(
                "outputs: mapping %d rows of %s into memory, once", len(ids), store.files.url
            )
            try:
                with cache.writing(key) as folder:
                    _write(folder, store, ids, chosen, limit)
                    cache.make_room((folder / SHARD).stat().st_size, limit)
            except OSError as error:
                if not is_full(error):
                    raise
                raise LimbeckError(
                    f"{cache.folder} has no room for the outputs of {len(ids)} rows: the disk is full",
                    f"make room there, or name another folder by {FOLDER_VARIABLE}",
                ) from error
            entry = cache.find(key, just_written=True)
    assert entry is not None  # just renamed into its place
    return entry


def _chosen(store: OutputStore, columns: Sequence[str] | None) -> list[OutputColumn]:
    own = {column.name: column for column in store.columns}
    unknown = [name for name in columns or () if name not in own]
    if unknown:
        raise LimbeckError(
            f"{store.files.url}: {', '.join(unknown)} is not stored", f"stored: {', '.join(own)}"
        )
    return [own[name] for name in (columns or own)]


def _key(store: OutputStore, ids: np.ndarray, chosen: list[OutputColumn]) -> str:
    """What the entry follows from: the shards' content, the rows, the columns."""
    shards = [(shard.name, shard.checksum) for shard in store.manifest.shards]
    layout = OutputLayout(tuple(chosen)).written()
    about = [_FORMAT, shards, digest_of_ids(ids), layout]
    return hashlib.blake2b(json.dumps(about).encode(), digest_size=16).hexdigest()


def _write(
    folder: Path, store: OutputStore, ids: np.ndarray, chosen: list[OutputColumn], limit: int
) -> None:
    """Shard by shard; how much room rows of many lengths take shows only then."""
    layout, size = OutputLayout(tuple(chosen)), 0
    features = layout.features_with_ids
    with ArrowWriter(features=features, path=str(folder / SHARD)) as writer:
        for table in _by_index(store, ids, [column.name for column in chosen]):
            size += table.nbytes
            if size > limit:
                raise LimbeckError(
                    f"{store.files.url}: mapped into memory, the outputs of {len(ids)} rows take "
                    f"more than cache_limit, {human_size(limit)}",
                    "raise cache_limit, take fewer rows, or let limbeck label --outputs store less",
                )
            arrays = [column.combine_chunks() for column in table.columns]
            writer.write_table(pa.table(arrays, schema=features.arrow_schema))
        writer.finalize()
    rows = store.manifest.rows.model_copy(
        update={"count": len(ids), "fingerprint": digest_of_ids(ids)}
    )
    manifest = store.manifest.model_copy(
        update={
            "keyed": INDEX,
            "row_ids": True,
            "rows": rows,
            "columns": tuple(layout.written()),
            "text": False,
            "labelled": False,
        }
    )
    describe(folder, manifest, rows=len(ids))


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
        # Of the k-th time a row is wanted the k-th place among those of its id.
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
        index = order[np.repeat(start, times) + nth]
        found = table.select([ROW, *columns]).take(pa.array(rows))
        yield found.add_column(0, INDEX, pa.array(index, pa.int64()))
