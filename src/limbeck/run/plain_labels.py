"""Pseudo-labels as a plain table that any program reads: text, label, confidence. Part of `limbeck.run`."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as parquet
from scipy.special import softmax

from limbeck.data.candidate_files import PASSAGE, QUERY, SCORE
from limbeck.data.text_rows import TextRows
from limbeck.errors import LimbeckError, Problem, unknown
from limbeck.files import write_whole
from limbeck.tasks import get_task_type
from limbeck.teachers.outputs import OutputStore
from limbeck.teachers.outputs.columns import LOGITS
from limbeck.teachers.outputs.parquet_shards import LABEL
from limbeck.teachers.outputs.scored_shard import PROBABILITIES, VOTES

FORMATS = (".csv", ".jsonl", ".parquet")
CONFIDENCE = "confidence"


def check_target(path: Path) -> list[Problem]:
    """What is wrong with a table's name, before any row is labelled."""
    if path.suffix.lower() not in FORMATS:
        return [unknown("file type of --to", path.suffix or path.name, FORMATS)]
    return []


def check_columns(texts: Sequence[str]) -> None:
    """Raise LimbeckError for text columns that have the name of what stands beside them."""
    if taken := {*texts} & {LABEL, CONFIDENCE, SCORE}:
        raise LimbeckError(
            f"--to: the text column {', '.join(sorted(taken))} has the name of a column that is written",
            "rename it in your file, or leave --to out and read the store",
        )


def write_plain_labels(path: Path, store: OutputStore, rows: TextRows) -> None:
    """Write a row for every row read: its texts under the user's own names, `label` (a class's name, or a number),
    and of classes `confidence`; of a query's candidate `score`, as its label would be a grade.

    Raises:
        LimbeckError: the store has no labels, rows are missing, or the file cannot be written.
    """
    if not store.manifest.labelled:
        raise LimbeckError(
            f"{store.files.url} holds neither logits nor probabilities, so there are no labels",
            "add --outputs probabilities",
        )
    known = [c.name for c in store.columns if c.name in (PROBABILITIES, LOGITS, VOTES)]
    found = store.take(rows.ids, [LABEL, *known])
    columns: dict[str, pa.Array | pa.ChunkedArray] = dict(
        zip(rows.names, rows.columns.values(), strict=True)
    )
    if store.classes:
        columns[LABEL] = pa.array([store.classes[number] for number in found[LABEL]])
        columns[CONFIDENCE] = pa.array(_confidence(found))
    else:
        scored = get_task_type(store.kind).candidates is not None or rows.names == (QUERY, PASSAGE)
        columns[SCORE if scored else LABEL] = pa.array(found[LABEL])
    table = pa.table(columns)
    write_whole(path, _content(table, path.suffix.lower()))


def _confidence(found: dict[str, np.ndarray]) -> np.ndarray:
    """The probability of the class, as far as there is one; of votes their share."""
    if PROBABILITIES in found:
        return found[PROBABILITIES].max(axis=1)
    if LOGITS in found:
        return softmax(found[LOGITS], axis=1).max(axis=1)
    votes = found[VOTES]
    return votes.max(axis=1) / votes.sum(axis=1).clip(min=1e-9)


def _content(table: pa.Table, suffix: str) -> bytes:
    sink = io.BytesIO()
    if suffix == ".csv":
        pyarrow.csv.write_csv(table, sink)
    elif suffix == ".parquet":
        parquet.write_table(table, sink)
    else:
        for line in table.to_pylist():
            sink.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    return sink.getvalue()
