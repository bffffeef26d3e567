"""Pseudo-labels as a plain table that any program reads: text, label, confidence. Part of `limbeck.labelling`.

Of all rows at once only numbers are held; their texts are read and written piece by piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as parquet
from scipy.special import softmax

from limbeck.data.candidate_files import PASSAGE, QUERY, SCORE
from limbeck.data.files import open_rows
from limbeck.data.text_rows import TextRows
from limbeck.outputs import OutputStore
from limbeck.outputs.columns import LOGITS
from limbeck.outputs.shards import DECIDING, LABEL, PROBABILITIES
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.files import written_whole
from limbeck.tasks import get_task_type

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
    if "://" in str(to) or _URL.match(str(to)):
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


def check_unread(path: Path, rows: TextRows) -> None:
    """Raise LimbeckError for a table in the place of a file that is read."""
    if any(Path(source).resolve() == path.resolve() for source in rows.source):
        raise LimbeckError(f"--to {path} is one of the files that are read", "name another file")


def check_free(path: Path, rows: TextRows, written: Sequence[str]) -> None:
    """Raise LimbeckError for a file that is there and is not what an earlier start wrote, which is written again.

    Args:
        written: the columns beside the texts (`columns_beside`).
    """
    if path.exists() and not _is_such_a_table(path, rows, written):
        raise LimbeckError(
            f"--to {path} exists, and is no table of labels of these rows ({', '.join([*rows.names, *written])})",
            "name another file, or remove this one",
        )


def _is_such_a_table(path: Path, rows: TextRows, written: Sequence[str]) -> bool:
    """Whether a table has the columns and the first row's texts: any data of one's own may have the columns too."""
    first = _first_row(path)
    if first is None or [*first] != [*rows.names, *written]:
        return False
    texts = [column[0].as_py() for column in rows.columns.values()]
    return [first[name] for name in rows.names] == texts


def _first_row(path: Path) -> dict[str, Any] | None:
    """A table's first row by its columns; None of what cannot be read, and of a table without rows."""
    try:
        with closing(open_rows(path)) as source:
            rows = source.take(1).dicts(None)
    except LimbeckError:
        return None
    return rows[0] if rows else None


def check_columns(texts: Sequence[str]) -> None:
    """Raise LimbeckError for text columns that have the name of what stands beside them."""
    if taken := {*texts} & {LABEL, CONFIDENCE, SCORE}:
        raise LimbeckError(
            f"--to: the text column {', '.join(sorted(taken))} has the name of a column that is written",
            "rename it in your file, or leave --to out and read the store",
        )


def columns_beside(kind: str, classes: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    """The columns that stand beside the texts of a table.

    Args:
        kind: the task type.
        classes: of the labels; () of numbers.
        texts: what the text columns are called.
    """
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
    return int(decided.tied[place[stored]].sum())


@dataclass(frozen=True)
class _Decided:
    """What the outputs of all stored rows come to: label (n,), and confidence (n,) of classes.

    `tied` (n,): whether several classes are equally likely, so that none of them is the label.
    """

    store: OutputStore
    label: np.ndarray
    confidence: np.ndarray | None
    tied: np.ndarray

    @classmethod
    def of(cls, store: OutputStore) -> _Decided:
        """Read shard by shard: of many classes the outputs themselves are larger than the texts."""
        held = [column.name for column in store.columns]
        name = next(one for one in DECIDING if one in held)
        labels, sure, tied = [], [], []
        for found in store.shards([LABEL, name]):
            labels.append(found[LABEL])
            tied.append(_tied(found[name]))
            if store.classes:
                sure.append(_confidence(name, found[name]))
        confidence = np.concatenate(sure) if sure else None
        return cls(store, np.concatenate(labels), confidence, np.concatenate(tied))

    def columns(self, places: np.ndarray, texts: Sequence[str]) -> dict[str, Any]:
        """Columns of some rows, given their places among the stored ones and what their text columns are called."""
        absent = places == _NOWHERE
        label = pa.array(self.label[places], mask=absent | self.tied[places])
        beside = columns_beside(self.store.kind, self.store.classes, texts)
        if self.confidence is None:
            return dict.fromkeys(beside, label)
        names = pa.array(self.store.classes).take(label)
        sure = pa.array(self.confidence[places], mask=absent)
        return dict(zip(beside, (names, sure), strict=True))


def _tied(values: np.ndarray) -> np.ndarray:
    """Whether several classes have the greatest value of a row, boolean (n,), of values (n, C)."""
    several: np.ndarray = (values == values.max(axis=1, keepdims=True)).sum(axis=1) > 1
    return several


def _confidence(name: str, values: np.ndarray) -> np.ndarray:
    """The probability of the likeliest class, as far as there is one; of votes its share."""
    if name == PROBABILITIES:
        return values.max(axis=1)
    if name == LOGITS:
        return softmax(values, axis=1).max(axis=1)
    return values.max(axis=1) / values.sum(axis=1).clip(min=1e-9)


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
