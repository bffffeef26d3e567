"""Pseudo-labels as a plain table that any program reads: text, label, confidence. Part of `limbeck.labelling`.

Only numbers are held for all rows at once; their texts are read and written piece by piece.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as parquet
from scipy.special import softmax

from limbeck.data.candidates import PASSAGE, QUERY, SCORE
from limbeck.data.text_rows import TextRows
from limbeck.labelling.fill import LabelWork
from limbeck.outputs import columns, manifest, shards
from limbeck.outputs.store import OutputStore
from limbeck.support.errors import LimbeckError, Problem, problem_list, unknown
from limbeck.support.files import written_whole
from limbeck.tasks import get_task_type

CONFIDENCE = "confidence"
FORMATS = (".csv", ".jsonl", ".parquet")
_PIECE = 16_384
"""Rows that are written together; of Parquet a row group."""
_LINES = 1024
"""Rows that are Python objects together."""
_NOWHERE = -1
# A path that a URL became has one slash; a drive of Windows has one letter.
_URL = re.compile(r"[A-Za-z][\w+.-]+:/")


@problem_list
def check_place(
    to: str | Path, endings: Sequence[str], read: Iterable[object] = (), *, overwrite: bool = False
) -> Iterator[Problem]:
    """The problem with the name or path of a file of rows, before any work.

    Args:
        to: the file that is to be written.
        endings: its allowed ones.
        read: files that are read.
        overwrite: whether it may take the place of another one.
    """
    path = Path(to)
    if _URL.match(str(to)):
        yield Problem(
            f"--to {to} is a URL, and a table is written to a file of this machine",
            f"name a file, --to {path.name}, and copy it there; a store may be at a URL: --out",
        )
        return
    if path.suffix.lower() not in endings:
        yield unknown("file type of --to", path.suffix or path.name, endings)
    if path.is_dir():
        yield Problem(f"--to {path} is a folder", f"name a file: {path}/rows.csv")
    elif any(path.resolve() == Path(str(one)).resolve() for one in read):
        yield Problem(f"--to {path} is one of the files that are read", "name another file")
    elif path.exists() and not overwrite:
        yield Problem(f"--to {path} exists", "name another file, or remove this one")


def check_labels(path: str, work: LabelWork) -> None:
    """Raise LimbeckError for outputs that come to no label, or to several, and for columns of the table's names."""
    labeller, names = work.labeller, work.rows.names
    if clashing := {*names} & {shards.LABEL, CONFIDENCE, SCORE}:
        raise LimbeckError(
            f"--to: the text column {', '.join(sorted(clashing))} has the name of a column that is written",
            "rename it in your file, or leave --to out and read the store",
        )
    if not manifest.has_one_label(labeller.kind):
        raise LimbeckError(
            f"to: {labeller.name} gives a row any number of classes, and {path} would have one",
            "leave --to out, the store has every class's probability; or limbeck predict, which writes all "
            "classes of a row",
        )
    if not work.decides:
        raise LimbeckError(
            f"to: {', '.join(work.content.outputs)} come to no label, and {path} is a table of labels",
            "add --outputs probabilities, or leave --to out",
        )


def write_plain_labels(path: Path, store: OutputStore, rows: TextRows) -> tuple[int, Counter[str]]:
    """Write a row for every row read: its texts under the user's own names, `label` (a class's name, or a number),
    and of classes `confidence`; of a query's candidate `score`, as its label would be a grade.

    They are empty where the store was made without the row; the label also where several classes are equally likely.
    Returns how many such rows of several there are, and how many rows have each class.

    Raises:
        LimbeckError: rows are missing in the store, or the file cannot be written.
    """
    label, sure, tied = _decided(store)
    scored = get_task_type(store.kind).candidates is not None or rows.names == (QUERY, PASSAGE)
    beside = [shards.LABEL, CONFIDENCE] if store.classes else [SCORE if scored else shards.LABEL]
    stored = ~np.isin(rows.ids, [*store.manifest.missing_rows])
    place = np.full(len(rows), _NOWHERE)
    place[stored] = store.places(rows.ids[stored])

    def piece(start: int, count: int) -> pa.Table:
        window = place[start : start + count]
        absent = window == _NOWHERE
        columns = zip(rows.names, rows.columns.values(), strict=True)
        table: dict[str, Any] = {name: column.slice(start, count) for name, column in columns}
        labels = pa.array(label[window], mask=absent | tied[window])
        found = [labels]
        if store.classes:
            found = [pa.array(store.classes).take(labels), pa.array(sure[window], mask=absent)]
        return pa.table(table | dict(zip(beside, found, strict=True)))

    with written_whole(path) as stream:
        pieces = (piece(start, _PIECE) for start in range(0, len(rows), _PIECE))
        _write(stream, path.suffix.lower(), piece(0, 0).schema, pieces)
    several, counts = tied[place[stored]], Counter[str]()
    if store.classes:
        chosen = label[place[stored]][~several].astype(int)
        found = np.bincount(chosen, minlength=len(store.classes)).tolist()
        counts.update(dict(zip(store.classes, found, strict=True)))
    return int(several.sum()), counts


def _write(stream: IO[bytes], ending: str, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    if ending == ".jsonl":
        for table in tables:
            for batch in table.to_batches(max_chunksize=_LINES):
                for line in batch.to_pylist():
                    stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        return
    make: Any = parquet.ParquetWriter if ending == ".parquet" else pyarrow.csv.CSVWriter
    with make(stream, schema) as writer:
        for table in tables:
            writer.write_table(table)


def _decided(store: OutputStore) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The labels from the outputs of all stored rows, read shard by shard: for many classes they are larger than texts.

    Returns:
        the label (n,); the probability of the likeliest class (n,), as far as there is one, of votes its share; and
        whether several classes are equally likely (n,), so that no class is the label.
    """
    held = [column.name for column in store.columns]
    name = next(one for one in shards.DECIDING if one in held)
    labels, sure, tied = [], [], []
    for found in store.shards([shards.LABEL, name]):
        values = found[name]
        most = values.max(axis=1, keepdims=True)
        labels.append(found[shards.LABEL])
        tied.append((values == most).sum(axis=1) > 1)
        if name == columns.LOGITS:
            values = softmax(values, axis=1)
        elif name != columns.PROBABILITIES:
            values = values / values.sum(axis=1, keepdims=True).clip(min=1e-9)
        sure.append(values.max(axis=1))
    return np.concatenate(labels), np.concatenate(sure), np.concatenate(tied)
