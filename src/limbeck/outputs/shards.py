"""A shard of a store that travels: rows as a Parquet file, and back. Part of `limbeck.outputs`.

Equal rows make equal bytes.
"""

import io
from collections.abc import Mapping, Sequence
from math import isqrt, prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
from datasets import Features, Value

from limbeck.outputs.columns import INDEX, LOGITS, PROBABILITIES, ROW, OutputColumn, OutputLayout
from limbeck.outputs.files import StoreFiles
from limbeck.outputs.manifest import ShardRecord, has_one_label
from limbeck.support.errors import LimbeckError
from limbeck.support.files import checksum_of_bytes, damaged

LABEL = "label"
"""The column of labels that follow from the outputs: a class id, or a number."""
RESERVED = frozenset({ROW, LABEL, INDEX})
VOTES = "votes"
DECIDING = (PROBABILITIES, LOGITS, VOTES)
"""By which outputs a row's class is decided, the first that is there."""


# A kill may cost one shard, and a reader holds one shard in memory.
_SHARD_BYTES = 64 * 2**20
_MOST_ROWS, _FEWEST_ROWS = 4096, 64


def rows_of_shard(row_bytes: float) -> int:
    """Rows per shard, from the bytes of one row, so that a shard fits memory and is quick to make: a power of two."""
    fitting = 2 ** int(np.log2(max(_SHARD_BYTES / max(row_bytes, 1.0), 1)))
    return int(np.clip(fitting, _FEWEST_ROWS, _MOST_ROWS))


def shard_name(number: int) -> str:
    """The file name of the shard with that number."""
    return f"shard-{number:05d}.parquet"


def shard_table(
    ids: np.ndarray,
    texts: Mapping[str, Sequence[str]],
    label: np.ndarray | None,
    layout: OutputLayout,
    values: Mapping[str, np.ndarray],
) -> pa.Table:
    """Rows as a table: `row`, text columns, `label`, then the outputs, values of one row flat."""
    features: dict[str, Any] = {ROW: Value("int64")}
    arrays: list[pa.Array] = [pa.array(ids, pa.int64())]
    for name, text in texts.items():
        features[name] = Value("string")
        arrays.append(pa.array(text, pa.string()))
    if label is not None:
        features[LABEL] = Value("int64" if label.dtype.kind == "i" else "float32")
        arrays.append(pa.array(label))
    for column in layout.columns:
        features[column.name] = column.feature
        arrays.append(flat_values(column, values[column.name]))
    return pa.table(arrays, schema=Features(features).arrow_schema)


def flat_values(column: OutputColumn, values: np.ndarray | list[np.ndarray]) -> pa.Array:
    """Values of some rows, (n, …) or an array for each, as the column has them in a table."""
    if column.fixed:
        flat = np.ascontiguousarray(values, dtype=column.dtype).reshape(-1)
        return pa.FixedSizeListArray.from_arrays(pa.array(flat), prod(column.sizes()))
    sizes = [value.size for value in values]
    parts = [np.asarray(value, dtype=column.dtype).reshape(-1) for value in values]
    flat = np.concatenate(parts) if parts else np.empty(0, dtype=column.dtype)
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), pa.array(flat))


def shaped_values(column: OutputColumn, array: pa.ChunkedArray) -> np.ndarray:
    """The inverse of `flat_values`: (n, …), or an object array of arrays in their own shapes."""
    array = array.combine_chunks()
    flat = array.flatten().to_numpy(zero_copy_only=False)
    if column.fixed:
        result: np.ndarray = flat.reshape(len(array), *column.sizes())
        return result
    ends = np.asarray(array.offsets) - array.offsets[0].as_py()
    found = np.empty(len(array), dtype=object)
    for row in range(len(array)):
        found[row] = _as_long_as_it_is(column, flat[ends[row] : ends[row + 1]])
    return found


def _as_long_as_it_is(column: OutputColumn, flat: np.ndarray) -> np.ndarray:
    """One row's values in their shape; flat where encoder and decoder have lengths of their own."""
    of_tokens = [size for size in column.shape if isinstance(size, str)]
    if len(set(of_tokens)) > 1:
        return flat
    per_token = prod(size for size in column.shape if isinstance(size, int))
    tokens = flat.size // per_token
    tokens = isqrt(tokens) if len(of_tokens) == 2 else tokens
    return flat.reshape([size if isinstance(size, int) else tokens for size in column.shape])


def labels_of(
    values: Mapping[str, np.ndarray], classes: Sequence[str], kind: str
) -> np.ndarray | None:
    """Labels that follow from the outputs: class ids, int64 (n,), or numbers, float32 (n,); None for other task types.

    If several classes are equally likely, the first is taken; the output values show the tie.

    Args:
        values: by output (n, C), or (n, 1) of numbers.
        classes: C names in id order; () of numbers.
        kind: the task type.
    """
    if not has_one_label(kind):
        return None
    width = len(classes) or 1
    for name in DECIDING:
        value = values.get(name)
        if value is not None and value.dtype != object and value.shape[1:] == (width,):
            if classes:
                found: np.ndarray | None = value.argmax(axis=1).astype(np.int64)
                return found
            return value[:, 0].astype(np.float32)
    return None


def write_shard(files: StoreFiles, name: str, table: pa.Table) -> ShardRecord:
    """Write a shard atomically; the manifest does not name it yet."""
    sink = io.BytesIO()
    # Numbers that are all different would be stored twice: in a dictionary, and as places in it.
    coded = [field.name for field in table.schema if pa.types.is_string(field.type)]
    rows = max(len(table), 1)
    parquet.write_table(table, sink, compression="zstd", row_group_size=rows, use_dictionary=coded)
    content = sink.getvalue()
    files.write(name, content)
    return ShardRecord(
        name=name, rows=len(table), bytes=len(content), checksum=checksum_of_bytes(content)
    )


def read_shard(
    files: StoreFiles, shard: ShardRecord, columns: Sequence[str] | None = None
) -> pa.Table:
    """A shard's columns, all if none are named.

    Raises:
        LimbeckError: as `shard_content`.
    """
    content = pa.BufferReader(shard_content(files, shard))
    return parquet.read_table(content, columns=columns and [*columns])


def shard_content(files: StoreFiles, shard: ShardRecord) -> bytes:
    """A shard's bytes, held against the checksum.

    Raises:
        LimbeckError: it is missing or damaged.
    """
    where = f"{files.url}: shard {shard.name}"
    again = "run the same `limbeck label` command again, which makes it again"
    if files.folder is None:  # as `StoreWriter.begin` looks at it
        again += ", of a store far away once it is complete"
    try:
        content = files.read(shard.name)
    except FileNotFoundError:
        raise LimbeckError(f"{where} is missing", again) from None
    if not _is_as_written(content, shard):
        raise LimbeckError(
            f"{where} is damaged: its content has changed since it was written", again
        )
    return content


def is_whole(files: StoreFiles, shard: ShardRecord) -> bool:
    """Whether a shard is there as it was written.

    Raises:
        LimbeckError: it cannot be read, so the answer is unknown.
    """
    try:
        return _is_as_written(files.read(shard.name), shard)
    except FileNotFoundError:
        return False


def _is_as_written(content: bytes, shard: ShardRecord) -> bool:
    return len(content) == shard.bytes and checksum_of_bytes(content) == shard.checksum


def read_rows(files: StoreFiles, shard: ShardRecord) -> np.ndarray:
    """A shard's row ids, of a large shard far away without the rest.

    Raises:
        LimbeckError: it is missing or damaged.
    """
    try:
        with files.open(shard.name) as file:
            found = parquet.read_table(pa.PythonFile(file, mode="r"), columns=[ROW])[ROW]
    except (FileNotFoundError, pa.ArrowException, LimbeckError):
        found = read_shard(files, shard, [ROW])[ROW]
    result: np.ndarray = found.to_numpy()
    return result


# A shard of an entry of training, mapped into memory.


_SUFFIX = ".arrow"


def is_mapped(shard: ShardRecord) -> bool:
    """Whether a shard is read by mapping it rather than as Parquet."""
    return shard.name.endswith(_SUFFIX)


def map_shard(files: StoreFiles, shard: ShardRecord) -> pa.Table:
    """All its columns, as views of the file, which has been held against its checksum.

    Raises:
        LimbeckError: it is missing, damaged, or on another machine.
    """
    where = f"{files.url}: shard {shard.name}"
    if files.folder is None:
        raise LimbeckError(
            f"{where} is mapped into memory, and is on another machine",
            "copy the entry where it was made: limbeck outputs copy KEY URL",
        )
    if damaged(files.folder, {shard.name: shard.checksum}):
        raise LimbeckError(
            f"{where} is missing or damaged since it was written",
            "remove the entry (limbeck outputs clear KEY) and run the training again, which makes it again",
        )
    return pa.ipc.open_stream(pa.memory_map(str(files.folder / shard.name))).read_all()
