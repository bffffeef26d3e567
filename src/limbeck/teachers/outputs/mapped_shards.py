"""A shard of an entry of training, mapped into memory. Part of `limbeck.teachers.outputs`."""

from __future__ import annotations

import pyarrow as pa

from limbeck.support.errors import LimbeckError
from limbeck.support.files import damaged
from limbeck.teachers.outputs.store_files import StoreFiles
from limbeck.teachers.outputs.store_manifest import ShardRecord

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
            f"{where} is mapped into memory, and lies on another machine",
            "copy the entry where it was made: limbeck outputs copy KEY URL",
        )
    if damaged(files.folder, {shard.name: shard.checksum}):
        raise LimbeckError(
            f"{where} is missing or damaged: it is not what was written",
            "remove the entry (limbeck outputs clear KEY) and run the training again, which makes it again",
        )
    return pa.ipc.open_stream(pa.memory_map(str(files.folder / shard.name))).read_all()
