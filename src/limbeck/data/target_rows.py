"""Rows with the text that a decoder is to write: it stands beside the input texts, and in the row's id.

Part of `limbeck.data`. What a text-to-text teacher puts out follows from the target too, which its decoder reads
(teacher forcing), so that rows of equal texts and other targets are different rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import Dataset

from limbeck.data.loading import load_task
from limbeck.data.row_ids import row_ids
from limbeck.data.tables import MAX_ROWS
from limbeck.data.text_rows import TextRows
from limbeck.data.unlabelled import ids_of
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TEXT, Task
from limbeck.tasks.known_types import labelled_rows
from limbeck.tasks.text import label_word

TARGET = "target"
"""The column of what a decoder is to write."""
_PIECE = 65_536


def keys_of(task: Task, rows: Dataset) -> np.ndarray:
    """The ids by which a split's rows are found in outputs, int64 (n,): of their texts, and of the target where a
    decoder writes it.
    """
    if not task.kind.classes_as_text:
        return ids_of(task, rows)
    found = [
        row_ids([*(part[name] for name in task.text_columns), _targets(task, part)])
        for part in (rows[start : start + _PIECE] for start in range(0, len(rows), _PIECE))
    ]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def read_target_rows(
    source: str | Path,
    *,
    task: str | None = None,
    text_columns: Sequence[str] = (),
    label_column: str | None = None,
    max_rows: int = MAX_ROWS,
) -> tuple[Task, TextRows]:
    """All labelled rows of a source, of all its splits, the target's text as their last column.

    Args:
        source: what `load_task` reads.
        task: a known task, or the name of one's own, with which prompts begin.
        text_columns: of a file of one's own.
        label_column: of a file of one's own.
        max_rows: of a file; more are refused.

    Raises:
        LimbeckError: it cannot be read, no row has a label, or a text column is called `target`.
    """
    found, splits = load_task(
        task, source, text_columns=text_columns, label_column=label_column, kind=TEXT.name,
        for_training=False, max_rows=max_rows,
    )  # fmt: skip
    if TARGET in found.text_columns:
        raise LimbeckError(
            f"{source}: a text column is called {TARGET!r}, as the column of what the decoder writes",
            "rename the column",
        )
    columns: dict[str, list[str]] = {name: [] for name in (*found.text_columns, TARGET)}
    without = 0
    for rows in splits.values():
        told = _told(found, rows)
        without += len(rows) - len(told)
        part = told[:]
        for name in found.text_columns:
            columns[name] += part[name]
        columns[TARGET] += _targets(found, part) if len(told) else []
    if not columns[TARGET]:
        raise LimbeckError(
            f"{source}: no row has a label, and a text-to-text teacher is asked for each token of a row's target",
            "give labelled rows; `limbeck predict` writes what the model itself answers",
        )
    arrays = {
        name: pa.chunked_array([pa.array(own, pa.large_string())]) for name, own in columns.items()
    }
    names = (*(text_columns or found.text_columns), TARGET)
    return found, TextRows(arrays, (str(source),), names, without_target=without)


def _told(task: Task, rows: Dataset) -> Dataset:
    """The rows that have a label; a test split may lack the column."""
    if task.label_column not in rows.column_names:
        return rows.select([])
    known = labelled_rows(rows.with_format("numpy")[task.label_column][:])
    return rows if known.all() else rows.select(np.flatnonzero(known))


def _targets(task: Task, rows: dict) -> list[str]:
    return [label_word(task, label) for label in rows[task.label_column]]
