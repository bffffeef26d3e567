"""Training rows without labels beside the labelled ones: compared by text with the others, put below.

Part of `limbeck.data`. A row of dev or test among them would be trained on and scored on; one that is among
the labelled rows already, or comes twice, adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from datasets import Dataset, DatasetDict, DatasetInfo, Features, Value
from datasets.table import InMemoryTable

from limbeck.data.column import taken
from limbeck.data.row_ids import row_ids
from limbeck.data.splits import digest_of, stacked
from limbeck.data.unlabelled_files import TextFile
from limbeck.support.errors import LimbeckError
from limbeck.tasks.known_types import absent_label, labelled_rows
from limbeck.tasks.task import Task

Duplicates = Literal["refuse", "drop"]
_PIECE = 65_536
_SHOWN = 3


@dataclass(frozen=True)
class UnlabelledRows:
    """What became of the rows without a label.

    Attributes:
        kept: how many are trained on, those of the task's own data included.
        scored: how many were left out because dev or test holds their texts.
        repeated: how many of the files were left out as their texts are another training row's.
        blank: how many of the files were left out as they hold no text.
    """

    kept: int = 0
    scored: int = 0
    repeated: int = 0
    blank: int = 0


def with_unlabelled(
    task: Task, splits: DatasetDict, files: Sequence[TextFile], duplicates: Duplicates
) -> tuple[DatasetDict, UnlabelledRows]:
    """The splits with the files' rows in train, below its own, each with a number (`index`) of its own.

    Labelled rows stay as they are. Of rows without a label, from the files or from train, those that dev or test
    holds too are refused, or left out with `duplicates="drop"`.

    Raises:
        LimbeckError: such rows, with their number and the first of them; nothing is left.
    """
    train = splits["train"]
    labelled = labelled_rows(train.with_format("numpy")[task.label_column][:])
    if labelled.all() and not files:
        return splits, UnlabelledRows()
    compared = _Compared.of(task, splits, labelled, files)
    scored = int(compared.is_scored(compared.unlabelled).sum())
    if scored and duplicates == "refuse":
        raise compared.refusal()
    keep_own = labelled | ~compared.is_scored(compared.own)
    if not keep_own.all():
        train = train.select(np.flatnonzero(keep_own))
    kept, repeated = compared.fresh()
    splits = DatasetDict({**splits, "train": train})
    if files:
        splits["train"] = stacked(train, _rows(task, train, files, kept))
    left = int((keep_own & ~labelled).sum()) + sum(int(mask.sum()) for mask in kept)
    if not len(splits["train"]):
        raise LimbeckError("unlabelled: no row is left to train on", "name files of other rows")
    blank = sum(file.blank for file in files)
    return splits, UnlabelledRows(left, scored, repeated, blank)


def ids_of(task: Task, rows: Dataset) -> np.ndarray:
    """The ids of a split's rows, int64 (n,), by their texts in the order of the task's columns."""
    return _ids(_texts(task, rows))


def _texts(task: Task, rows: Dataset) -> list[pa.ChunkedArray]:
    table: pa.Table = rows.with_format("arrow")[:]
    return [table.column(name) for name in task.text_columns]


def _ids(columns: Sequence[pa.ChunkedArray]) -> np.ndarray:
    """The ids of rows, a piece at a time: Python's texts take ten times the room."""
    found = [
        row_ids([column.slice(start, _PIECE).to_pylist() for column in columns])
        for start in range(0, len(columns[0]), _PIECE)
    ]
    return np.concatenate(found) if found else np.array([], dtype=np.int64)


@dataclass(frozen=True)
class _Compared:
    """The rows of a run by what they say.

    Attributes:
        texts: the text columns of the training rows.
        labelled: which of these have a label, (n,) of bool.
        own: their ids, int64 (n,).
        files: the files of rows without labels.
        of_files: of each file the ids of its rows.
        scored: by split that is scored, the ids of its rows.
    """

    texts: Sequence[pa.ChunkedArray]
    labelled: np.ndarray
    own: np.ndarray
    files: Sequence[TextFile]
    of_files: Sequence[np.ndarray]
    scored: Mapping[str, np.ndarray]

    @classmethod
    def of(
        cls, task: Task, splits: DatasetDict, labelled: np.ndarray, files: Sequence[TextFile]
    ) -> _Compared:
        texts = _texts(task, splits["train"])
        scored = {name: ids_of(task, rows) for name, rows in splits.items() if name != "train"}
        of_files = [_ids(file.columns) for file in files]
        return cls(texts, labelled, _ids(texts), files, of_files, scored)

    @property
    def unlabelled(self) -> np.ndarray:
        """The ids of all rows without a label, those of the training rows first."""
        return np.concatenate([self.own[~self.labelled], *self.of_files])

    def is_scored(self, ids: np.ndarray) -> np.ndarray:
        """Which of some rows dev or test holds, (n,) of bool."""
        if not self.scored:
            return np.zeros(len(ids), dtype=bool)
        return np.isin(ids, np.concatenate([*self.scored.values()]))

    def fresh(self) -> tuple[list[np.ndarray], int]:
        """By file which rows are neither scored on nor repeat a training row; and how many repeat one."""
        joined = np.concatenate([self.own, *self.of_files])
        first = np.zeros(len(joined), dtype=bool)
        first[np.unique(joined, return_index=True)[1]] = True
        masks, start, repeated = [], len(self.own), 0
        for file in self.of_files:
            new, scored = first[start : start + len(file)], self.is_scored(file)
            masks.append(new & ~scored)
            repeated += int((~new & ~scored).sum())
            start += len(file)
        return masks, repeated

    def refusal(self) -> LimbeckError:
        """Says how many rows without a label are scored on, in which splits, and the first of them."""
        unlabelled = self.unlabelled
        counts = {
            name: int(np.isin(unlabelled, there).sum()) for name, there in self.scored.items()
        }
        total = int(self.is_scored(unlabelled).sum())
        shown = list(self._examples())
        said = ", ".join(f"{count} in {name}" for name, count in counts.items() if count)
        return LimbeckError(
            f"unlabelled: {total} of {len(unlabelled)} rows are rows of the splits that are scored, text by text "
            f"({said}): {'; '.join(shown)}" + ("; …" if total > len(shown) else ""),
            "remove them; or set unlabelled_duplicates=drop, which leaves them out and says so",
        )

    def _examples(self) -> Iterator[str]:
        """The first few of them, by file and text."""
        sources = [("the training rows", self.texts, self.is_scored(self.own) & ~self.labelled)]
        sources += [
            (file.path.name, file.columns, self.is_scored(ids))
            for file, ids in zip(self.files, self.of_files, strict=True)
        ]
        left = _SHOWN
        for name, columns, mask in sources:
            for row in np.flatnonzero(mask)[:left]:
                left -= 1
                texts = " | ".join(column[int(row)].as_py() for column in columns)
                yield f"{name}: {texts!r:.80}"


def _rows(
    task: Task, train: Dataset, files: Sequence[TextFile], kept: Sequence[np.ndarray]
) -> Dataset:
    """The rows of the files that are kept, as training rows without a label."""
    places = [np.flatnonzero(mask) for mask in kept]
    count = sum(map(len, places))
    columns: dict[str, Any] = {
        name: pa.chunked_array(
            [
                chunk
                for file, chosen in zip(files, places, strict=True)
                for chunk in _chosen(file.columns[number], chosen).chunks
            ],
            pa.large_string(),
        )
        for number, name in enumerate(task.text_columns)
    }
    numbers = train.with_format("numpy")["index"][:]
    first = int(numbers.max()) + 1 if len(numbers) else 0
    columns["index"] = pa.array(np.arange(first, first + count))
    wide = {name: Value("large_string") for name in task.text_columns}
    features = Features({name: wide.get(name, kind) for name, kind in train.features.items()})
    of_labels = features.arrow_schema.field(task.label_column).type
    columns[task.label_column] = pa.array([absent_label(task)] * count, of_labels)
    table = pa.table({name: columns[name] for name in features}).cast(features.arrow_schema)
    info = DatasetInfo(features=features)
    return Dataset(InMemoryTable(table), info=info, fingerprint=digest_of(table))


def _chosen(column: pa.ChunkedArray, places: np.ndarray) -> pa.ChunkedArray:
    return column if len(places) == len(column) else taken(column, places)
