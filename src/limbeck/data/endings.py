"""Which files hold rows: the form that each ending stands for, and how a compressed file is opened.

Part of `limbeck.data`. Whatever reads rows (training, `label`, `predict`, scoring) asks this table, so that a file
that one command reads is read alike by all.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, BinaryIO, cast

import datasets
import pyarrow as pa
import pyarrow.parquet as parquet

from limbeck.support.plain import regular

FORMS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".txt": "text",
    ".text": "text",
}
"""The form of a file by its ending."""
CONLL = (".conll", ".bio", ".iob", ".iob2")
"""Further endings of words with tags, in columns."""
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
"""What compressed a file, by the ending that stands behind the others: rows.csv.gz."""
ARCHIVES = (".bz2", ".xz", ".zip", ".7z", ".tar", ".tgz")
"""Endings of what is not opened here."""
TEXT_COLUMN = "text"
"""Name of the one column of plain text."""
_PIECE = 1 << 20


def known_endings(*more: str) -> str:
    """All endings that are read, as messages list them."""
    return f"{', '.join([*FORMS, *more])}, each also with {' or '.join(COMPRESSED)} behind it"


def form_of(path: Path) -> str | None:
    """Return the form of a file, one of `FORMS`' values; None for an unknown ending."""
    return FORMS.get(ending_of(path))


def ending_of(path: Path) -> str:
    """Return a file's ending in small letters, without that of its compression."""
    return _uncompressed(path).suffix.lower()


def stem_of(path: Path) -> str:
    """Return a file's name without its endings: `reviews` of reviews.csv.gz."""
    return _uncompressed(path).stem


def compression_of(path: Path) -> str | None:
    """Return what compressed a file, by its last ending; None if nothing did."""
    return COMPRESSED.get(path.suffix.lower())


def _uncompressed(path: Path) -> Path:
    return path.with_suffix("") if compression_of(path) else path


def opened(path: Path) -> BinaryIO:
    """Open a file for reading its bytes, decompressed.

    Raises:
        LimbeckError: it is no file on disk.
        OSError: it cannot be opened; reading raises it for damaged compression.
    """
    kind = compression_of(regular(path))
    if kind is None:
        return path.open("rb")
    return cast(BinaryIO, pa.input_stream(str(path), compression=kind))


def decompressed(file: IO[bytes], path: Path) -> BinaryIO:
    """Return a stream of what an open file holds, decompressed by the ending of `path`; `file` is to be closed too."""
    kind = compression_of(path)
    if kind is None:
        return cast(BinaryIO, file)
    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(file, mode="r"), kind))


def opened_text(path: Path, newline: str = "\n") -> io.TextIOWrapper:
    r"""Open a file of text in UTF-8, with or without a byte-order mark; lines end at `newline`."""
    return io.TextIOWrapper(opened(path), encoding="utf-8-sig", newline=newline)


def lines_of(path: Path) -> Iterator[str]:
    r"""Yield the lines of a file without their ends, \n or \r\n; any other separator is part of the text."""
    with opened_text(path) as file:
        for line in file:
            yield line.removesuffix("\n").removesuffix("\r")


def parquet_file(path: Path) -> parquet.ParquetFile:
    """Open a Parquet file, mapped. A compressed one is decompressed into a file without a name."""
    if compression_of(path) is None:
        return parquet.ParquetFile(regular(path), memory_map=True)
    place: Path | None = Path(datasets.config.HF_DATASETS_CACHE)
    try:
        assert place is not None
        place.mkdir(parents=True, exist_ok=True)
    except OSError:  # the system's own folder for such files then
        place = None
    handle, name = tempfile.mkstemp(dir=place, prefix=".limbeck-rows-", suffix=".parquet")
    try:
        with os.fdopen(handle, "wb") as whole, opened(path) as packed:
            shutil.copyfileobj(packed, whole, _PIECE)
        return parquet.ParquetFile(name, memory_map=True)
    finally:
        with suppress(OSError):  # Windows removes no file that is mapped
            Path(name).unlink()
