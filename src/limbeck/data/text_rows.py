"""Texts without labels: whatever a file, a folder or a dataset holds to be labelled. Part of `limbeck.data`.

Labels that are there are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from datasets import Dataset

from limbeck.data.beir import is_beir
from limbeck.data.candidate_files import PASSAGE, QUERY, pairs_in
from limbeck.data.files import TEXT_COLUMN, form_of, known_endings
from limbeck.data.load import load_task
from limbeck.data.row_ids import row_ids
from limbeck.data.stream import matching
from limbeck.data.table import read_table, usual_label, usual_texts
from limbeck.data.unlabelled import ids_of, is_meant, read_unlabelled
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.support.given import is_reference, place_of
from limbeck.support.settings import MAX_ROWS
from limbeck.tasks import TEXT
from limbeck.tasks.abstract_type import labelled_rows
from limbeck.tasks.task import TASKS, Task
from limbeck.tasks.text import label_word

_PIECE = 65_536
_ONE, _TWO = ("sentence",), ("sentence1", "sentence2")
_PAIR = (QUERY, PASSAGE)


@dataclass(frozen=True)
class TextRows:
    """Rows of text.

    Attributes:
        columns: by the names that a labeller knows, in the order in which a model reads them.
        source: where they are from.
        names: what the user calls the columns, which is what is written.
        blank: rows that say nothing, which were left out.
        without_target: rows without the text that a decoder is to write, left out where there has to be one.
    """

    columns: Mapping[str, pa.ChunkedArray]
    source: tuple[str, ...]
    names: tuple[str, ...]
    blank: int = 0
    without_target: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @cached_property
    def ids(self) -> np.ndarray:
        """`row_ids` of all rows, in their order."""
        found = [
            row_ids([column.slice(start, _PIECE).to_pylist() for column in self.columns.values()])
            for start in range(0, len(self), _PIECE)
        ]
        return np.concatenate(found)

    @cached_property
    def first(self) -> np.ndarray:
        """The places of the rows that are the first of their id, in order: every different row once."""
        return np.sort(np.unique(self.ids, return_index=True)[1])

    def take(self, places: np.ndarray) -> dict[str, list[str]]:
        """The texts at some places, by column."""
        # Of neighbours in millions of rows only these are touched.
        first = int(places.min(initial=len(self)))
        chosen, count = pa.array(places - first), int(places.max(initial=-1)) + 1 - first
        return {
            name: column.slice(first, max(count, 0)).take(chosen).to_pylist()
            for name, column in self.columns.items()
        }


def read_text_rows(
    source: str | Path,
    *,
    task: str | None = None,
    text_columns: Sequence[str] = (),
    max_rows: int = MAX_ROWS,
) -> TextRows:
    """All rows of a source, of all its splits.

    Args:
        source: a file (CSV, TSV, JSON lines, Parquet, or plain text with a row on every line), a folder of such files
            or a pattern of their names, the reference of rows that were given as objects, or what `load_task` reads: a
            folder in GLUE's layout, `hub`, `pocket`, ….
        task: a known task, whose columns they are; it is needed for what is no file of the user's own.
        text_columns: the columns that hold text, one or two. If left out, those of usual names
            (`limbeck.data.files`), or the only one. Of queries with candidates every pair is a row.
        max_rows: of a file; more are refused.

    Raises:
        LimbeckError: nothing is there, it cannot be read, or its text columns are not known or not text.
    """
    path = at_home(place_of(source))
    known = TASKS.get(task) if task is not None else None
    if is_reference(source):
        files = sorted(path.glob("*.parquet"))
        parts = [_of_file(file, known, text_columns, max_rows) for file in files]
        return replace(joined(parts), source=(str(source),))
    if path.is_file():
        files = [path]
    elif _is_of_files(path, known, text_columns):
        files = sorted(file for file in path.iterdir() if form_of(file) is not None)
        if not files:
            raise LimbeckError(f"{path} holds no file of rows", f"expected {known_endings()}")
    elif matches := matching(str(source)):
        files = matches
    else:
        return _of_task(source, task, text_columns, max_rows)
    return joined([_of_file(file, known, text_columns, max_rows) for file in files])


def _is_of_files(path: Path, known: Task | None, text_columns: Sequence[str]) -> bool:
    """Whether a source is a folder of which every file of rows is read."""
    return path.is_dir() and bool(text_columns or (known is None and not is_beir(path)))


def stands_for(
    source: str | Path, file: Path, *, task: str | None = None, text_columns: Sequence[str] = ()
) -> bool:
    """Whether a folder or a pattern, as `read_text_rows` takes it, means this file, which need not be there yet."""
    if is_reference(source) or at_home(source).is_file():
        return False
    known = TASKS.get(task) if task is not None else None
    if _is_of_files(at_home(source), known, text_columns):
        inside = file.resolve().parent == at_home(source).resolve()
        return inside and form_of(file) is not None
    return is_meant(str(source), file)


def joined(parts: Sequence[TextRows]) -> TextRows:
    """Rows under each other, with the first one's names.

    Raises:
        LimbeckError: one has a text where another has a pair.
    """
    widths = {len(part.columns): part.source[0] for part in parts}
    if len(widths) > 1:
        raise LimbeckError(
            f"{widths[1]} has one text in a row, {widths[2]} has two",
            "label them apart, or name the columns with --text-columns",
        )
    names = [*parts[0].columns]
    stacked = zip(*(part.columns.values() for part in parts), strict=True)
    columns = {
        name: pa.chunked_array(
            [chunk for column in same for chunk in column.chunks], pa.large_string()
        )
        for name, same in zip(names, stacked, strict=True)
    }
    return TextRows(
        columns,
        tuple(source for part in parts for source in part.source),
        parts[0].names,
        sum(part.blank for part in parts),
    )


def _of_task(
    source: str | Path, task: str | None, text_columns: Sequence[str], max_rows: int
) -> TextRows:
    found, splits = load_task(
        task, source, text_columns=text_columns, for_training=False, max_rows=max_rows
    )
    parts = []
    for split in splits.values():
        table = split.with_format("arrow")[:]
        columns = {name: _strings(table[name]) for name in found.text_columns}
        names = tuple(text_columns or found.text_columns)
        parts.append(TextRows(columns, (str(source),), names))
    return replace(joined(parts), source=(str(source),))


def _of_file(
    file: Path, known: Task | None, text_columns: Sequence[str], max_rows: int
) -> TextRows:
    names = text_columns or (None if known is not None else _unnamed_columns(file, max_rows))
    task = known or _own_task(len(names or _ONE))
    if names is not None and len(names) != len(task.text_columns):
        raise LimbeckError(
            f"{file}: {len(names)} text columns are named, and task {task.name!r} reads "
            f"{len(task.text_columns)}",
            f"--text-columns names those that stand for {', '.join(task.text_columns)}",
        )
    (found,) = read_unlabelled([str(file)], task, text_columns=names, max_rows=max_rows)
    columns = zip(task.text_columns, map(_strings, found.columns), strict=True)
    called = names or ((TEXT_COLUMN,) if known is None else known.text_columns)
    return TextRows(dict(columns), (str(file),), tuple(called), found.blank)


def _own_task(columns: int) -> Task:
    """What texts without a known task are called."""
    if columns > 2:
        raise LimbeckError(
            f"{columns} text columns are named", "name one or two: --text-columns A [B]"
        )
    return Task("rows", "rows", _ONE if columns == 1 else _TWO, (), (), "")


def _unnamed_columns(file: Path, max_rows: int) -> list[str] | None:
    """The columns that training takes, or the only one; None of plain text, which has no columns."""
    if form_of(file) == "text":
        return None
    table = pairs_in(read_table(file, max_rows))
    columns = [*table.columns]
    if {*_PAIR} <= {*columns}:  # as training finds them, lists of candidates among them
        return [*_PAIR]
    if len(columns) == 1:
        return columns
    label = usual_label(columns, [*table.class_names])
    words = [
        name
        for name, column in table.columns.items()
        if name != label and column.text_or_gaps is not None
    ]
    found = usual_texts(words)
    if not found:
        raise LimbeckError(
            f"{file}: no text columns are named",
            f"--text-columns A [B]; columns that are there: {', '.join(columns)}",
        )
    return found


def _strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise LimbeckError(
            f"rows of {column.type} cannot be labelled", "label rows of one text or a pair of texts"
        )
    return column.cast(pa.large_string())


# Rows with the text that a decoder is to write: it stands beside the input texts, and in the row's
# id. What a text-to-text teacher puts out follows from the target too, which its decoder reads
# (teacher forcing), so that rows of equal texts and other targets are different rows.


TARGET = "target"
"""The column of what a decoder is to write."""


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
