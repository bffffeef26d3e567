"""Pseudo-labels as a plain table that any program reads: text, label, confidence. Part of `limbeck.run`.

Of all rows at once only numbers are held; their texts are read and written piece by piece.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as parquet
from scipy.special import softmax

from limbeck.data.candidate_files import PASSAGE, QUERY, SCORE
from limbeck.data.text_rows import TextRows
from limbeck.errors import LimbeckError, Problem, unknown
from limbeck.files import written_whole
from limbeck.tasks import get_task_type
from limbeck.teachers.outputs import OutputStore
from limbeck.teachers.outputs.columns import LOGITS
from limbeck.teachers.outputs.parquet_shards import LABEL
from limbeck.teachers.outputs.scored_shard import PROBABILITIES, VOTES

CONFIDENCE = "confidence"
_PIECE = 16_384
"""Rows that are written together; of Parquet a row group."""
_LINES = 1024
"""Rows that are Python objects together."""
_NOWHERE = -1


def check_target(path: Path) -> list[Problem]:
    """What is wrong with a table's name and place, before any row is read."""
    if path.suffix.lower() not in FORMATS:
        return [unknown("file type of --to", path.suffix or path.name, FORMATS)]
    if path.is_dir():
        return [Problem(f"--to {path} is a folder", f"name a file: {path}/labels.csv")]
    return []


def check_free(path: Path, rows: TextRows) -> None:
    """Raise LimbeckError for a file that is read, or that is there and is no table of these labels.

    One that an earlier start wrote, with the same columns, is written again.
    """
    if any(Path(source).resolve() == path.resolve() for source in rows.source):
        raise LimbeckError(f"--to {path} is one of the files that are read", "name another file")
    if path.exists() and _columns_of(path) != [*rows.names, LABEL, CONFIDENCE]:
        raise LimbeckError(
            f"--to {path} exists, and is no table of labels and their confidence",
            "name another file, or remove this one",
        )


def _columns_of(path: Path) -> list[str] | None:
    """The names of a table's columns; None of what cannot be read."""
    try:
        if path.suffix.lower() == ".parquet":
            return list(parquet.read_schema(path).names)
        with path.open(encoding="utf-8", newline="") as file:
            if path.suffix.lower() == ".csv":
                return next(csv.reader(file), None)
            return [*json.loads(file.readline())]
    except (OSError, ValueError, TypeError, csv.Error, pa.ArrowException):
        return None


def check_columns(texts: Sequence[str]) -> None:
    """Raise LimbeckError for text columns that have the name of what stands beside them."""
    if taken := {*texts} & {LABEL, CONFIDENCE, SCORE}:
        raise LimbeckError(
            f"--to: the text column {', '.join(sorted(taken))} has the name of a column that is written",
            "rename it in your file, or leave --to out and read the store",
        )


def write_plain_labels(path: Path, store: OutputStore, rows: TextRows) -> None:
    """Write a row for every row read: its texts under the user's own names, `label` (a class's name, or a number),
    and of classes `confidence`; of a query's candidate `score`, as its label would be a grade. They are empty where the
    store was made without the row.

    Raises:
        LimbeckError: the store has no labels, rows are missing, or the file cannot be written.
    """
    if not store.manifest.labelled:
        raise LimbeckError(
            f"{store.files.url} holds neither logits nor probabilities, so there are no labels",
            "add --outputs probabilities",
        )
    decided = _Decided.of(store)
    stored = ~np.isin(rows.ids, [*store.manifest.missing_rows])
    place = np.full(len(rows), _NOWHERE)
    place[stored] = store.places(rows.ids[stored])

    def piece(start: int, count: int) -> pa.Table:
        columns = zip(rows.names, rows.columns.values(), strict=True)
        texts = {name: column.slice(start, count) for name, column in columns}
        return pa.table(texts | decided.columns(place[start : start + count], rows.names))

    with (
        written_whole(path) as stream,
        _WRITERS[path.suffix.lower()](stream, piece(0, 0).schema) as writer,
    ):
        for start in range(0, len(rows), _PIECE):
            writer.write_table(piece(start, _PIECE))


@dataclass(frozen=True)
class _Decided:
    """What the outputs of all stored rows come to: label (n,), and confidence (n,) of classes."""

    store: OutputStore
    label: np.ndarray
    confidence: np.ndarray | None

    @classmethod
    def of(cls, store: OutputStore) -> _Decided:
        """Read shard by shard: of many classes the outputs themselves are larger than the texts."""
        known = [c.name for c in store.columns if c.name in (PROBABILITIES, LOGITS, VOTES)]
        labels, sure = [], []
        for found in store.shards([LABEL, *known]):
            labels.append(found[LABEL])
            if store.classes:
                sure.append(_confidence(found))
        return cls(store, np.concatenate(labels), np.concatenate(sure) if sure else None)

    def columns(self, places: np.ndarray, texts: Sequence[str]) -> dict[str, Any]:
        """Columns of some rows, given their places among the stored ones and what their text columns are called."""
        absent = places == _NOWHERE
        label = pa.array(self.label[places], mask=absent)
        if self.confidence is not None:
            names = pa.array(self.store.classes).take(label)
            return {LABEL: names, CONFIDENCE: pa.array(self.confidence[places], mask=absent)}
        scored = get_task_type(self.store.kind).candidates is not None or texts == (QUERY, PASSAGE)
        return {SCORE if scored else LABEL: label}


def _confidence(found: dict[str, np.ndarray]) -> np.ndarray:
    """The probability of the class, as far as there is one; of votes their share."""
    if PROBABILITIES in found:
        return found[PROBABILITIES].max(axis=1)
    if LOGITS in found:
        return softmax(found[LOGITS], axis=1).max(axis=1)
    votes = found[VOTES]
    return votes.max(axis=1) / votes.sum(axis=1).clip(min=1e-9)


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
