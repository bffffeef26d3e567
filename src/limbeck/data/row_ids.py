"""Which row is which, wherever it is read: an id from what a row says. Part of `limbeck.data`.

Stored teacher outputs are found again by these ids in another file, another order or on another machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from limbeck.support.errors import LimbeckError
from limbeck.tasks.task import Task

# Stands between texts: no UTF-8 text holds this byte.
_SEPARATOR = b"\xff"
_BYTES = 8
# The sign bit stays free: ids are positive int64 in every library.
_MASK = (1 << 63) - 1


def row_ids(columns: Sequence[Sequence[str]]) -> np.ndarray:
    """The ids of some rows, int64 (n,), from their input texts: a 63-bit blake2b digest of each.

    Rows of equal texts share an id, as a teacher's outputs for them are equal. Names of columns, files and splits
    play no part; the order of the columns does.

    Args:
        columns: the text columns in the task's order, each with the text of every row.

    Raises:
        LimbeckError: no columns, columns of different lengths, or a value that is no text.
    """
    sizes = {len(column) for column in columns}
    if len(sizes) != 1:
        raise LimbeckError(
            f"row ids: {len(columns)} text columns of {sorted(sizes)} rows",
            "give at least one text column, all of one length",
        )
    found = (_id_of(texts) for texts in zip(*columns, strict=True))
    return np.fromiter(found, dtype=np.int64, count=sizes.pop())


def _id_of(texts: Sequence[str]) -> int:
    try:
        content = _SEPARATOR.join(text.encode() for text in texts)
    except (AttributeError, UnicodeEncodeError):
        raise LimbeckError(
            f"row ids: {texts!r:.120} is not one text for each column", "fill the gaps with text"
        ) from None
    digest = hashlib.blake2b(content, digest_size=_BYTES).digest()
    return int.from_bytes(digest, "big") & _MASK


# Which rows a score was measured on: a digest of a split's inputs and labels. Part of the data
# stage. A task's name says little: two files, or two versions of one, go by the same.


_ROWS = 1000


def rows_fingerprint(task: Task, rows: Dataset) -> str:
    """16 hexadecimal digits of a split's texts (or images) and labels, in their order.

    Names of columns, splits, files and folders play no part; class ids count by their names.
    """
    digest = hashlib.blake2b(digest_size=8)
    columns = [*task.text_columns, *task.kind.split_columns, task.label_column]
    read = rows.with_format("arrow")
    for start in range(0, len(rows), _ROWS):
        table = read[start : start + _ROWS]
        values = [table.column(name).to_pylist() for name in columns if name in table.column_names]
        if task.label_column in table.column_names:
            values[-1] = [_named(task, label) for label in values[-1]]
        for row in zip(*values, strict=True):
            digest.update(json.dumps([_plain(value) for value in row], default=str).encode())
    return digest.hexdigest()


def _named(task: Task, label: Any) -> Any:
    if task.kind.several_classes and isinstance(label, list):
        names = (name for name, one in zip(task.labels, label, strict=True) if one == 1)
        return None if any(one != one for one in label) else sorted(names)
    known = type(label) is int and 0 <= label < len(task.labels)
    return task.labels[label] if known else label


def _plain(value: Any) -> Any:
    """An image by its file's content, wherever the file lies; bytes by their digits."""
    if isinstance(value, bytes):
        return hashlib.blake2b(value).hexdigest()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"bytes", "path"}:
        content = value["bytes"]
        return _plain(Path(value["path"]).read_bytes() if content is None else content)
    return {name: _plain(value[name]) for name in sorted(value)}
