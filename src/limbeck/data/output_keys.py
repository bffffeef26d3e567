"""By which ids the examples of a split are found in stored outputs. Part of `limbeck.data`.

One for each row, of its texts; where examples are not rows, one for each of the texts that a teacher was asked about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from limbeck.data.row_ids import row_ids
from limbeck.data.text_rows import keys_of
from limbeck.tasks import Task
from limbeck.tasks.candidates import AskedTexts

_PIECE = 65_536


@dataclass(frozen=True)
class OutputKeys:
    """Ids, and what they teach.

    Attributes:
        ids: int64 (n,).
        rows: the place of the row that each is of, (n,).
        examples: the `index` of the example that each teaches, (n,).
        silent: the `index` of examples whose output nobody asks for, (m,).
    """

    ids: np.ndarray
    rows: np.ndarray
    examples: np.ndarray
    silent: np.ndarray

    def groups(self, task: Task, rows: Dataset) -> np.ndarray:
        """Numbers of which equal ones say that their ids are compared with one another, (n,)."""
        if task.kind.stored_as is not task.kind:  # each row asks about several texts
            return self.rows
        names = [name for name in task.text_columns if name in rows.column_names]
        found = task.kind.groups_of(task, {name: rows[name][:] for name in names})
        return self.rows if found is None else found[self.rows]

    def rows_known(self, known: np.ndarray, count: int) -> np.ndarray:
        """Which of `count` rows have all that is asked of them, boolean (count,), by which ids are known (n,)."""
        found = np.ones(count, dtype=bool)
        found[self.rows[~known]] = False
        return found


def output_keys(task: Task, rows: Dataset, *, alone: bool = False) -> OutputKeys:
    """The keys of a split's examples, which are numbered in the order in which the split is encoded.

    Args:
        alone: the outputs are of each text by itself.
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
    """What is asked about the rows, a piece at a time: Python's texts take ten times the room."""
    for start in range(0, len(rows), _PIECE):
        yield task.kind.asked_texts(task, rows[start : start + _PIECE], alone=alone)
