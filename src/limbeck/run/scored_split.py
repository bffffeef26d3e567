"""Which split of loaded rows is scored, and what came of it. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from datasets import Dataset

from limbeck.support.errors import LimbeckError, unknown
from limbeck.tasks import Results, Task


@dataclass(frozen=True)
class Scored:
    """A split of a task's rows, as loaded, with a model's scores and predictions."""

    task: Task
    split: str
    rows: Dataset
    results: Results


def split_to_score(task: Task, rows: Mapping[str, Dataset], split: str | None) -> str:
    """The split that is named, or the one that the task is scored on.

    Raises:
        LimbeckError: there is none of that name, or it has no labels.
    """
    chosen = split or (task.evaluation_splits(rows) or tuple(rows))[0]
    if chosen not in rows:
        raise LimbeckError(unknown("split", chosen, list(rows)))
    if task.label_column not in rows[chosen].column_names:
        raise LimbeckError(
            f"split {chosen!r} of {task.name} has no labels",
            "name another split, or add --predictions FILE to predict it",
        )
    return chosen
