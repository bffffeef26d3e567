"""Predictions of classes as arrays, whatever a task type keeps them as. Part of `limbeck.evaluation`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from limbeck.tasks import Task

Predictions = Mapping[str, Sequence[Any]]
"""`prediction`, `label` and perhaps `probabilities` by row, as `Results.predictions` holds them."""


@dataclass(frozen=True)
class ClassPredictions:
    """One model's predictions of n rows.

    Attributes:
        ids: class ids (n,); C, the number of classes, if a prediction names no class. With several classes per row
            0 and 1 for each class (n, C).
        probabilities: of all classes (n, C), where they are known.
    """

    ids: np.ndarray
    probabilities: np.ndarray | None = None

    @property
    def confidence(self) -> np.ndarray | None:
        """Each prediction's own probability (n,); of several classes of all answers together, a product."""
        known = self.probabilities
        if known is None:
            return None
        if self.ids.ndim == 2:
            known = np.where(self.ids == 1, known, 1 - known)
            return np.asarray(known.prod(axis=1))
        found: np.ndarray = known[np.arange(len(self.ids)), self.ids]
        return found


def has_class_scores(task: Task) -> bool:
    """Whether rows, or words, of the task have classes that can be counted one by one."""
    return bool(task.kind.row_classes(task) or task.kind.class_names(task.labels))


def class_predictions(task: Task, predictions: Predictions) -> ClassPredictions:
    """A model's predictions, of a tagger one a word."""
    known = predictions.get("probabilities")
    found = None if known is None else np.asarray(known, dtype=np.float64)
    return ClassPredictions(task.kind.class_ids(task, predictions["prediction"]), found)


def alike(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Where rows have the same class, or the same classes (n,)."""
    same = one == other
    found: np.ndarray = same.all(axis=1) if same.ndim == 2 else same
    return found


def agreement(task: Task, one: Predictions, other: Predictions) -> float | None:
    """The share of rows, 0 to 1, that two models predict alike; None where predictions are numbers."""
    if task.kind.predicts_numbers(task):
        return None
    rows = zip(one["prediction"], other["prediction"], strict=True)
    return float(np.mean([np.array_equal(a, b) for a, b in rows]))
