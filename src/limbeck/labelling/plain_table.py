"""Pseudo-labels as a plain table that any program reads: text, label, confidence. Part of `limbeck.labelling`.

Of all rows at once only numbers are held; their texts are read and written piece by piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as parquet
from scipy.special import softmax

from limbeck.data.candidates import PASSAGE, QUERY, SCORE
from limbeck.data.files import open_rows
from limbeck.data.text_rows import TextRows
from limbeck.outputs import OutputStore
from limbeck.outputs.columns import LOGITS, PROBABILITIES
from limbeck.outputs.manifest import has_one_label
from limbeck.outputs.shards import DECIDING, LABEL
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.files import written_whole
from limbeck.tasks import get_task_type
from limbeck.teachers.labeller import Labeller

CONFIDENCE = "confidence"
_PIECE = 16_384
"""Rows that are written together; of Parquet a row group."""
_LINES = 1024
"""Rows that are Python objects together."""
_NOWHERE = -1
# A path that a URL became has one slash; a drive of Windows has one letter.
_URL = re.compile(r"[A-Za-z][\w+.-]+:/")


def check_target(to: str | Path) -> list[Problem]:
    """What is wrong with a table's name and place, before any row is read."""
    path = Path(to)
    if _URL.match(str(to)):
        return [
            Problem(
                f"--to {to} is a URL, and a plain table is written to a file of this machine",
                f"name a file, --to {path.name}, and copy it there; a store may lie at a URL: --out",
            )
        ]
    if path.suffix.lower() not in FORMATS:
        return [unknown("file type of --to", path.suffix or path.name, FORMATS)]
    if path.is_dir():
        return [Problem(f"--to {path} is a folder", f"name a file: {path}/labels.csv")]
    return []


def check_rows(path: Path, rows: TextRows) -> None:
    """Raise LimbeckError for a table of rows whose columns it names itself, or in the place of a file that is read."""
    if clashing := {*rows.names} & {LABEL, CONFIDENCE, SCORE}:
        raise LimbeckError(
            f"--to: the text column {', '.join(sorted(clashing))} has the name of a column that is written",
            "rename it in your file, or leave --to out and read the store",
        )
    if any(Path(source).resolve() == path.resolve() for source in rows.source):
        raise LimbeckError(f"--to {path} is one of the files that are read", "name another file")


def check_labels(
    path: Path, labeller: Labeller, rows: TextRows, *, decides: bool, outputs: Sequence[str]
) -> None:
    """Raise LimbeckError for outputs that come to no label, or to several, and for a table in another file's place.

    Args:
        decides: whether the outputs come to a label.
        outputs: those that are stored.
    """
    if not has_one_label(labeller.kind):
        raise LimbeckError(
            f"to: {labeller.name} gives a row any number of classes, and {path} would have one",
            "leave --to out, the store has every class's probability; or limbeck predict, which writes all "
            "classes of a row",
        )
    if not decides:
        raise LimbeckError(
            f"to: {', '.join(outputs)} come to no label, and {path} is a table of labels",
            "add --outputs probabilities, or leave --to out",
        )
    names = [*rows.names, *_columns_beside(labeller.kind, labeller.classes, rows.names)]
    # Any data of one's own may have the columns too: the first row tells what an earlier start wrote.
    texts = [column[0].as_py() for column in rows.columns.values()]
    first = _first_row(path) if path.exists() else None
    ours = first is not None and [*first] == names and [first[name] for name in rows.names] == texts
    if path.exists() and not ours:
        raise LimbeckError(
            f"--to {path} exists, and is no table of labels of these rows ({', '.join(names)})",
            "name another file, or remove this one",
        )


def _first_row(path: Path) -> dict[str, Any] | None:
    """A table's first row by its columns; None of what cannot be read, and of a table without rows."""
    try:
        with closing(open_rows(path)) as source:
            rows = source.take(1).dicts(None)
    except LimbeckError:
        return None
    return rows[0] if rows else None


def _columns_beside(kind: str, classes: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    """The columns that stand beside texts of these names, of classes or of numbers."""
    if classes:
        return (LABEL, CONFIDENCE)
    scored = get_task_type(kind).candidates is not None or (*texts,) == (QUERY, PASSAGE)
    return (SCORE,) if scored else (LABEL,)


def write_plain_labels(path: Path, store: OutputStore, rows: TextRows) -> int:
    """Write a row for every row read: its texts under the user's own names, `label` (a class's name, or a number),
    and of classes `confidence`; of a query's candidate `score`, as its label would be a grade.

    They are empty where the store was made without the row; the label also where several classes are equally likely.
    Returns how many such rows of several there are.

    Raises:
        LimbeckError: the store has no labels, rows are missing, or the file cannot be written.
    """
    if not store.manifest.labelled:
        raise LimbeckError(
            f"{store.files.url} holds neither logits nor probabilities, so there are no labels",
            "add --outputs probabilities",
        )
    label, sure, tied = _decided(store)
    beside = _columns_beside(store.kind, store.classes, rows.names)
    stored = ~np.isin(rows.ids, [*store.manifest.missing_rows])
    place = np.full(len(rows), _NOWHERE)
    place[stored] = store.places(rows.ids[stored])

    def piece(start: int, count: int) -> pa.Table:
        window = place[start : start + count]
        absent = window == _NOWHERE
        columns = zip(rows.names, rows.columns.values(), strict=True)
        table = {name: column.slice(start, count) for name, column in columns}
        labels = pa.array(label[window], mask=absent | tied[window])
        found = [labels]
        if store.classes:
            found = [pa.array(store.classes).take(labels), pa.array(sure[window], mask=absent)]
        return pa.table(table | dict(zip(beside, found, strict=True)))

    with (
        written_whole(path) as stream,
        _WRITERS[path.suffix.lower()](stream, piece(0, 0).schema) as writer,
    ):
        for start in range(0, len(rows), _PIECE):
            writer.write_table(piece(start, _PIECE))
    return int(tied[place[stored]].sum())


def _decided(store: OutputStore) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the outputs of all stored rows come to, read shard by shard: of many classes they are larger than texts.

    Returns:
        the label (n,); the probability of the likeliest class (n,), as far as there is one, of votes its share; and
        whether several classes are equally likely (n,), so that none of them is the label.
    """
    held = [column.name for column in store.columns]
    name = next(one for one in DECIDING if one in held)
    labels, sure, tied = [], [], []
    for found in store.shards([LABEL, name]):
        values = found[name]
        most = values.max(axis=1, keepdims=True)
        labels.append(found[LABEL])
        tied.append((values == most).sum(axis=1) > 1)
        if name == LOGITS:
            values = softmax(values, axis=1)
        elif name != PROBABILITIES:
            values = values / values.sum(axis=1, keepdims=True).clip(min=1e-9)
        sure.append(values.max(axis=1))
    return np.concatenate(labels), np.concatenate(sure), np.concatenate(tied)


class _TableWriter(Protocol):
    """Writes tables of one schema under each other."""

    def write_table(self, table: pa.Table, /) -> None: ...


class _JsonLines:
    """A line for every row; Arrow writes none itself."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream

    def write_table(self, table: pa.Table) -> None:
        for batch in table.to_batches(max_chunksize=_LINES):
            for line in batch.to_pylist():
                self.stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


_WRITERS: dict[str, Callable[[IO[bytes], pa.Schema], AbstractContextManager[_TableWriter]]] = {
    ".csv": pyarrow.csv.CSVWriter,
    ".jsonl": lambda stream, schema: nullcontext(_JsonLines(stream)),
    ".parquet": parquet.ParquetWriter,
}
FORMATS = tuple(_WRITERS)
