"""One column of a file of the user's own, with its values in Arrow's memory, or in a file if there is much of them.

Below `tables`. A million strings take ten times the room as Python objects that they take in a file.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import datasets
import numpy as np
import pyarrow as pa

from limbeck.support.errors import LimbeckError
from limbeck.support.files import full_disk, is_full

PIECE = 4096
"""Values that wait as Python objects before they are packed."""
_TEXT = pa.large_string()


class ArrowColumn:
    """Values in their order; text, and what comes from Arrow, is packed; other values stay what they are."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        self._pieces: list[pa.Array | list[Any]] = []
        self._waiting: list[Any] = []
        self._packed = 0
        self._bytes = 0
        """Of what is in memory, the last pieces."""
        self._in_memory = 0
        """How many these are."""
        self.extend(values)

    def append(self, value: Any) -> None:
        """Add one value at the end."""
        self._waiting.append(value)
        if len(self._waiting) >= PIECE:
            self._pack()

    def extend(self, values: Iterable[Any]) -> None:
        """Add values at the end; best in pieces of about `PIECE`."""
        self._waiting.extend(values)
        if len(self._waiting) >= PIECE:
            self._pack()

    def extend_arrow(self, values: pa.Array) -> None:
        """Add an Arrow array's values at the end, without making Python objects of them."""
        self._pack()
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        self._add(values.cast(_TEXT) if _holds_text(values.type) else values)

    def _pack(self) -> None:
        if self._waiting:
            text = all(isinstance(value, str) for value in self._waiting)
            waiting, self._waiting = self._waiting, []
            self._add(pa.array(waiting, _TEXT) if text else waiting)

    def _add(self, piece: pa.Array | list[Any]) -> None:
        before = self._pieces[-1] if self._pieces else None
        self._pieces.append(piece)
        self._packed += len(piece)
        if isinstance(piece, list):
            self._bytes = self._in_memory = 0
            return
        if not isinstance(before, pa.Array) or before.type != piece.type:
            self._bytes = self._in_memory = 0
        self._bytes += piece.nbytes
        self._in_memory += 1
        if self._bytes > LARGE:
            lately = cast(list[pa.Array], self._pieces[-self._in_memory :])
            self._pieces[-self._in_memory :] = [off_memory(lately)]
            self._bytes = self._in_memory = 0
            del lately, piece
            give_back()

    def __len__(self) -> int:
        return self._packed + len(self._waiting)

    def __iter__(self) -> Iterator[Any]:
        self._pack()
        for piece in self._pieces:
            yield from piece.to_pylist() if isinstance(piece, pa.Array) else piece

    def pieces(self) -> Iterator[pa.Array | list[Any]]:
        """The values in parts, as they lie: Arrow's arrays, or lists of Python objects."""
        self._pack()
        yield from self._pieces

    def shared(self) -> list[Any]:
        """All values, with one object for a text that stands in many rows of a piece."""
        self._pack()
        found: list[Any] = []
        for piece in self._pieces:
            if not isinstance(piece, pa.Array):
                found += piece
            elif not _is_text(piece):
                found += piece.to_pylist()
            else:
                coded = piece.dictionary_encode()
                texts = coded.dictionary.to_pylist()
                found += [texts[number] for number in coded.indices.to_pylist()]
        return found

    def __getitem__(self, row: int) -> Any:
        self._pack()
        for piece in self._pieces:
            if row < len(piece):
                return piece[row].as_py() if isinstance(piece, pa.Array) else piece[row]
            row -= len(piece)
        raise IndexError(row)

    @property
    def text(self) -> pa.ChunkedArray | None:
        """All of it as Arrow text; None where a value is no text."""
        self._pack()
        if not all(map(_is_text, self._pieces)):
            return None
        return pa.chunked_array(self._pieces, _TEXT)

    @property
    def text_or_gaps(self) -> pa.ChunkedArray | None:
        """As `text`, with Arrow's null where a value is None."""
        self._pack()
        pieces = []
        for piece in self._pieces:
            if isinstance(piece, list):
                if not all(value is None or isinstance(value, str) for value in piece):
                    return None
                piece = pa.array(piece, _TEXT)
            elif pa.types.is_null(piece.type):
                piece = piece.cast(_TEXT)
            elif piece.type != _TEXT:
                return None
            pieces.append(piece)
        return pa.chunked_array(pieces, _TEXT)


def _holds_text(kind: pa.DataType) -> bool:
    of_text = pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view
    return any(is_it(kind) for is_it in of_text)


def _is_text(piece: pa.Array | list[Any]) -> bool:
    """Whether a piece is Arrow text without a gap."""
    return isinstance(piece, pa.Array) and piece.type == _TEXT and not piece.null_count


def taken(values: Sequence[Any] | pa.ChunkedArray, rows: Sequence[int] | np.ndarray) -> Any:
    """The chosen rows, of Arrow's text without making Python objects of the others."""
    if isinstance(values, pa.ChunkedArray) and values.type == _TEXT and _ascend(rows):
        return _sieved(values, np.asarray(rows))
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.take(pa.array(rows, pa.int64()))
    return [values[row] for row in rows]


def _ascend(rows: Sequence[int] | np.ndarray) -> bool:
    return bool((np.diff(np.asarray(rows)) > 0).all())


def _sieved(values: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    """Chunk by chunk: to take from all of them Arrow would join them first."""
    chosen = np.zeros(len(values), dtype=bool)
    chosen[rows] = True
    found, start = ArrowColumn(), 0
    for chunk in values.chunks:
        found.extend_arrow(chunk.filter(pa.array(chosen[start : start + len(chunk)])))
        start += len(chunk)
    return cast(pa.ChunkedArray, found.text)


# Large text columns in files without a name: memory holds the rows that are looked at, not all
# that were read. A file is made where the datasets library keeps its own, mapped, and removed from
# its folder at once, so that nothing is left of it when the process ends, however that ends; and
# nobody takes it for another version of the rows later.


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
