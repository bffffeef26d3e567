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
    return bool(task.labels) and task.kind.names_classes


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


# Models' predictions in the shapes that the analyses count with. Part of `limbeck.evaluation`;
# read by `limbeck.lab.measures` too.


def class_outputs(logits: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits (n, C) in float64 and class ids (n,).

    Raises ValueError for other shapes, ids outside 0..C−1, and no examples.
    """
    logits, labels = np.asarray(logits, dtype=float), np.asarray(labels)
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or not len(labels):
        raise ValueError(
            f"logits of shape {logits.shape} do not match labels of shape {labels.shape}; "
            "expected (n, C) and (n,), n at least 1"
        )
    labels = labels.astype(int)
    if labels.min() < 0 or labels.max() >= logits.shape[1]:
        raise ValueError(f"labels outside 0..{logits.shape[1] - 1}")
    return logits, labels


def number_outputs(outputs: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs (n,) or (n, 1) as float64 (n,), and the right numbers (n,).

    Raises ValueError for other shapes, and for no examples.
    """
    labels = np.asarray(labels, dtype=float)
    given = np.asarray(outputs, dtype=float)
    if given.shape not in (labels.shape, (*labels.shape, 1)) or labels.ndim != 1 or not len(labels):
        raise ValueError(
            f"outputs of shape {given.shape} do not match labels of shape {labels.shape}; "
            "expected (n,) or (n, 1) and (n,), n at least 1"
        )
    return given.reshape(-1), labels
