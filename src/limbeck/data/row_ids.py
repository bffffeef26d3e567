"""Identify rows by content, wherever they are read: an id from the row's values. Part of `limbeck.data`.

Stored teacher outputs are found again by these ids in another file, another order or on another machine: one for each
row, of its texts; if examples are not rows, one for each text that goes to a teacher.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset

from limbeck.support.errors import LimbeckError
from limbeck.tasks.candidates import AskedTexts
from limbeck.tasks.task import Task
from limbeck.tasks.text import label_word

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


_PIECE = 65_536


def ids_of_columns(columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """`row_ids` of Arrow's text, a piece at a time: Python's texts take ten times the room."""
    found = [
        row_ids([column.slice(start, _PIECE).to_pylist() for column in columns])
        for start in range(0, len(columns[0]), _PIECE)
    ]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def ids_of(task: Task, rows: Dataset) -> np.ndarray:
    """The ids of a split's rows, int64 (n,), by their texts in the order of the task's columns."""
    table: pa.Table = rows.with_format("arrow")[:]
    return ids_of_columns([table.column(name) for name in task.text_columns])


def keys_of(task: Task, rows: Dataset) -> np.ndarray:
    """The ids by which a split's rows are found in outputs, int64 (n,): of their texts, and of the target where a
    decoder writes it.

    A text-to-text teacher's outputs depend on the target too, which its decoder reads (teacher forcing).
    """
    if not task.kind.key_columns:
        return ids_of(task, rows)
    found = [
        row_ids([*(part[name] for name in task.text_columns), targets_of(task, part)])
        for part in (rows[start : start + _PIECE] for start in range(0, len(rows), _PIECE))
    ]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def targets_of(task: Task, rows: Mapping[str, Sequence[Any]]) -> list[str]:
    """The target text of each row, which a decoder learns to write."""
    return [label_word(task, label) for label in rows[task.label_column]]


@dataclass(frozen=True)
class OutputKeys:
    """Ids, and the examples that they teach.

    Attributes:
        ids: int64 (n,).
        rows: the place of the row that each is of, (n,).
        examples: the `index` of the example that each teaches, (n,).
        silent: the `index` of examples whose output is not needed, (m,).
    """

    ids: np.ndarray
    rows: np.ndarray
    examples: np.ndarray
    silent: np.ndarray

    def groups(self, task: Task, rows: Dataset) -> np.ndarray:
        """Numbers (n,), equal for ids that are compared with one another."""
        if task.kind.stored_as is not task.kind:  # each row asks about several texts
            return self.rows
        names = [name for name in task.text_columns if name in rows.column_names]
        found = task.kind.groups_of(task, {name: rows[name][:] for name in names})
        return self.rows if found is None else found[self.rows]

    def rows_known(self, known: np.ndarray, count: int) -> np.ndarray:
        """Which of `count` rows have all their outputs, boolean (count,), by which ids are known (n,)."""
        found = np.ones(count, dtype=bool)
        found[self.rows[~known]] = False
        return found


def output_keys(task: Task, rows: Dataset, *, alone: bool = False) -> OutputKeys:
    """The keys of a split's examples, which are numbered in the order in which the split is encoded.

    Args:
        alone: the outputs are of each text separately.
    """
    found = [*_asked(task, rows, alone=alone)]
    if not found or found[0] is None:
        index = np.asarray(rows["index"][:], dtype=np.int64)
        nothing = np.empty(0, dtype=np.int64)
        return OutputKeys(keys_of(task, rows), np.arange(len(rows)), index, nothing)
    ids, places, examples, count = [], [], [], 0
    for start, asked in zip(range(0, len(rows), _PIECE), found, strict=True):
        assert asked is not None  # one task type, one answer
        ids.append(row_ids(asked.columns))
        places.append(np.asarray(asked.rows, dtype=np.int64) + start)
        examples.append(np.asarray(asked.examples, dtype=np.int64) + count)
        count += asked.of
    taught = np.concatenate(examples)
    silent = np.setdiff1d(np.arange(count), taught)
    return OutputKeys(np.concatenate(ids), np.concatenate(places), taught, silent)


def _asked(task: Task, rows: Dataset, *, alone: bool) -> Iterator[AskedTexts | None]:
    """The texts to label in the rows, a piece at a time: Python's texts take ten times the room."""
    for start in range(0, len(rows), _PIECE):
        yield task.kind.asked_texts(task, rows[start : start + _PIECE], alone=alone)


# Which rows a score was measured on: a digest of a split's inputs and labels. Part of the data
# stage. A task's name is not enough: two files, or two versions of one, have the same name.


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
    written = task.kind.written_label(task, label)
    # The order in which several classes are listed does not matter.
    return sorted(written) if task.kind.problem_type is not None and written else written


def _plain(value: Any) -> Any:
    """An image by its file's content, wherever the file is; bytes by their digits."""
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
