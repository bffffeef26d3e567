"""What every source hands over: splits of one shape, with a seeded dev split where it has none.

A split holds the task's text columns, its label column (absent where the source has no labels) and
"index", the row number. Between the readers (folder, Hub, own files) and the encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash
from datasets import Dataset, DatasetDict, DatasetInfo, Features, Value
from datasets.table import InMemoryTable

from limbeck.data.column import taken
from limbeck.errors import LimbeckError
from limbeck.tasks.no_labels import absent_label, labelled_rows, no_unlabelled
from limbeck.tasks.task import Task

DEV_SHARE = 0.1
_AS_THEY_ARE = (pa.Array, pa.ChunkedArray, np.ndarray)


def make_split(
    task: Task, texts: Mapping[str, Sequence[Any]], labels: Sequence[Any] | None
) -> Dataset:
    """One split in memory, of text columns [n] (lists or Arrow) and labels [n].

    Labels are class ids or numbers, lists of tag ids, or answers; masked text has none of its own.
    """
    columns: dict[str, Any] = {name: texts[name] for name in task.text_columns}
    features = task.kind.features(task)
    if labels is not None:
        columns[task.label_column] = _checked(task, labels) if task.kind.has_classes else labels
    features = {name: feature for name, feature in features.items() if name in columns}
    rows = len(columns[task.text_columns[0]])
    columns["index"] = np.arange(rows)
    features["index"] = Value("int64")
    return _in_memory(columns, Features(features))


def _in_memory(columns: Mapping[str, Any], features: Features) -> Dataset:
    """A dataset of these columns; where all are Arrow's or numpy's, without a look at each value."""
    if not all(isinstance(values, _AS_THEY_ARE) for values in columns.values()):
        return Dataset.from_dict(dict(columns), features=features)
    table = pa.table(dict(columns)).cast(features.arrow_schema)
    # The datasets library would make a copy of all rows to take one of.
    own = digest_of(table)
    return Dataset(InMemoryTable(table), info=DatasetInfo(features=features), fingerprint=own)


def digest_of(table: pa.Table) -> str:
    """A digest of the values and their names, a piece at a time."""
    digest = xxhash.xxh3_64(str(table.schema).encode())
    for batch in table.to_batches():
        digest.update(batch.serialize())
    return digest.hexdigest()


def _checked(task: Task, labels: Sequence[Any]) -> pa.Array:
    """Class ids or numbers [n] in Arrow's memory; the datasets library looks at lists one by one.

    Raises LimbeckError for numbers beyond what the task's can be.
    """
    if task.bounds is not None:
        low, high = task.bounds
        wrong = [row for row, value in enumerate(labels, start=1) if value < low or value > high]
        if wrong:
            raise LimbeckError(
                f"task {task.name!r}: {len(wrong)} of {len(labels)} scores lie outside {low:g} to "
                f"{high:g}, the first in row {wrong[0]}: {labels[wrong[0] - 1]:g}",
                "fix those rows, or name a task of your own for scores of another range",
            )
    return pa.array(labels, pa.float64() if task.regression else pa.int64())


def hold_out(labels: Sequence[Any], stratify: bool, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of train and dev, each ascending: a tenth of those with a label, by `seed`.

    Rows without a label (−100, NaN) stay in train. With `stratify` a tenth of each class, at least one
    row of a class that has two or more (scikit-learn's own split refuses a class of one row; here such
    a row stays in train). Raises LimbeckError when no row can be spared.
    """
    generator = np.random.default_rng(seed)
    values = np.asarray(labels)
    labelled = np.flatnonzero(labelled_rows(values))
    groups = [labelled]
    if stratify:
        groups = [np.flatnonzero(values == label) for label in np.unique(values[labelled])]
    dev = []
    for rows in groups:
        spared = max(1, round(DEV_SHARE * len(rows))) if len(rows) > 1 else 0
        dev.extend(generator.permutation(rows)[:spared].tolist())
    if not dev:
        raise LimbeckError(
            f"{len(labelled)} rows are too few to keep some back as a dev split",
            "give a folder with train and dev files, or more rows",
        )
    held = np.sort(np.array(dev))
    kept = np.ones(len(values), dtype=bool)
    kept[held] = False
    return np.flatnonzero(kept), held


def take(columns: Mapping[str, Sequence[Any]], rows: Iterable[int]) -> dict[str, Any]:
    """The chosen rows of each column."""
    chosen = rows if isinstance(rows, np.ndarray) else list(rows)
    return {name: taken(values, chosen) for name, values in columns.items()}


def with_held_out_dev(
    task: Task, texts: Mapping[str, Sequence[Any]], labels: Sequence[Any], seed: int
) -> DatasetDict:
    """Train and dev splits out of one set of labelled rows; see `hold_out`."""
    if task.kind.labels_examples:
        stratify = task.kind.has_classes and not task.regression
        train, dev = hold_out(labels, stratify=stratify, seed=seed)
    else:
        train, dev = hold_out(range(len(labels)), stratify=False, seed=seed)
    return DatasetDict(
        {
            name: make_split(task, take(texts, rows), [labels[row] for row in rows])
            for name, rows in (("train", train), ("dev", dev))
        }
    )


def with_test_as_dev(task: Task, splits: DatasetDict) -> DatasetDict:
    """The test split under the name of dev, for a task whose papers score every epoch on it."""
    if task.dev_is_test and "dev" not in splits and "test" in splits:
        splits["dev"] = splits.pop("test")
    return splits


def stacked(rows: Dataset, more: Dataset) -> Dataset:
    """Rows and others of the same columns below them; text that lies in files stays there."""
    wide = {
        name: Value("large_string") if _is_text(kind) else kind
        for name, kind in rows.features.items()
    }
    features = Features(wide)
    tables = [
        part.with_format("arrow")[:].select(list(features)).cast(features.arrow_schema)
        for part in (rows, more)
    ]
    own = xxhash.xxh3_64(f"{rows._fingerprint} {more._fingerprint}".encode()).hexdigest()
    table = InMemoryTable(pa.concat_tables(tables))
    return Dataset(table, info=DatasetInfo(features=features), fingerprint=own)


def _is_text(kind: Any) -> bool:
    return isinstance(kind, Value) and kind.dtype in ("string", "large_string")


def with_label_column(task: Task, rows: Dataset) -> Dataset:
    """Training rows with a label column in which none has a label, where they come without one."""
    if task.label_column in rows.column_names or no_unlabelled(task.kind) is not None:
        return rows
    features = Features({**task.kind.features(task), "index": Value("int64")})
    table: pa.Table = rows.with_format("arrow")[:]
    columns = {name: table.column(name) for name in table.column_names}
    absent = absent_label(task)
    columns[task.label_column] = pa.array(
        [absent] * len(rows) if isinstance(absent, list) else np.full(len(rows), absent)
    )
    return _in_memory({name: columns[name] for name in features}, features)


def check_splits(task: Task, splits: DatasetDict, origin: str, *, for_training: bool) -> None:
    """Raise LimbeckError when a split is missing, empty or lacks its labels.

    Training needs train and every dev split; scoring alone needs one labelled split. Where the dev splits have
    labels the rows of train may go without, if the task type can learn from a teacher alone.
    """
    labelled = [name for name, split in splits.items() if task.label_column in split.column_names]
    empty = [name for name, split in splits.items() if len(split) == 0]
    if empty:
        raise LimbeckError(
            f"task {task.name!r}: the split{'s' if len(empty) > 1 else ''} {', '.join(empty)} "
            f"of {origin} hold no rows",
            "check the files, or fetch them again",
        )
    needed = ("train", *task.dev_splits) if for_training else ()
    missing = [name for name in needed if name not in labelled]
    if missing == ["train"] and "train" in splits and no_unlabelled(task.kind) is None:
        missing = []
    if missing or not task.evaluation_splits(labelled):
        wanted = ", ".join(missing) or " or ".join((*task.dev_splits, "test"))
        raise LimbeckError(
            f"task {task.name!r}: {origin} has no labelled split {wanted}",
            f"labelled splits that are there: {', '.join(labelled) or 'none'}",
        )
