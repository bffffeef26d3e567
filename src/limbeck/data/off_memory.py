"""Large text columns in files without a name: memory holds the rows that are looked at, not all that were read.

Below `column`. A file is made where the datasets library keeps its own, mapped, and removed from its folder at
once, so that nothing is left of it when the process ends, however that ends; and nobody takes it for another
version of the rows later.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import datasets
import pyarrow as pa

from limbeck.support.errors import LimbeckError
from limbeck.support.files import full_disk, is_full

LARGE = 1 << 24
"""Bytes of text that may stay in memory together."""


def off_memory(pieces: Sequence[pa.Array]) -> pa.Array:
    """The same values, of one type, in one array whose bytes lie in a file.

    Raises:
        LimbeckError: the disk is full.
    """
    if os.name == "nt":  # Windows removes no file that is mapped
        return _joined(pieces)
    place = Path(datasets.config.HF_DATASETS_CACHE)
    try:
        place.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place, prefix=".limbeck-rows-", suffix=".arrow")
    except OSError:  # a folder that nobody may write to
        return _joined(pieces)
    try:
        return _mapped(pieces, handle, name)
    except OSError as error:
        if not is_full(error):
            raise
        raise LimbeckError(
            full_disk(place, error).message,
            "make room there, or name another folder for it in the environment: HF_DATASETS_CACHE",
        ) from error
    finally:
        Path(name).unlink(missing_ok=True)


def give_back() -> None:
    """Return to the system what Arrow has freed and kept for later."""
    pa.default_memory_pool().release_unused()


def _mapped(pieces: Sequence[pa.Array], handle: int, name: str) -> pa.Array:
    joined = _joined(pieces)
    batch = pa.record_batch([joined], ["values"])
    with os.fdopen(handle, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)
    with pa.memory_map(name) as source:
        return pa.ipc.open_file(source).get_batch(0).column(0)


def _joined(pieces: Sequence[pa.Array]) -> pa.Array:
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
