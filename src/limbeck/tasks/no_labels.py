"""Rows without a label: which task types may train on them, and how a label column says so. Part of `limbeck.tasks`.

A class id is −100 where there is none, and a number NaN (of several labels a row each of them), in loaded rows,
in encoded ones and in batches alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

import numpy as np

from limbeck.functional.labels import NO_LABEL
from limbeck.tasks.abstract_type import TaskType
from limbeck.tasks.task_like import TaskLike


class TaskOfKind(TaskLike, Protocol):
    """A task with its type."""

    @property
    def kind(self) -> TaskType:
        """Its type."""


def absent_label(task: TaskOfKind) -> float | int | list[float]:
    """What stands in the label column of a row that has none."""
    if task.kind.several_classes:
        return [float("nan")] * len(task.labels)
    return float("nan") if task.regression else NO_LABEL


def marked(task: TaskOfKind, labels: Iterable[Any]) -> list[Any]:
    """Class ids or numbers as a column holds them, from a list with None where there is none."""
    absent = absent_label(task)
    return [absent if label is None else label for label in labels]


def labelled_rows(labels: Any) -> np.ndarray:
    """Which rows have a label, (n,) of bool, by a loaded or encoded label column of class ids or numbers,
    or of a number for each class (n, C)."""
    values = np.asarray(labels)
    known = ~np.isnan(values) if values.dtype.kind == "f" else values != NO_LABEL
    return known if known.ndim == 1 else known.all(axis=1)


class NoUnlabelled(NamedTuple):
    """Why rows without labels are no part of a task type's training rows, in words, and what to do with them."""

    why: str
    instead: str


def no_unlabelled(kind: TaskType) -> NoUnlabelled | None:
    """Why a task type takes no rows without a label beside those that have one; None if it does."""
    if kind.rows_without_labels:
        return NoUnlabelled("its rows need no labels", "give these rows with the others: --data")
    if not kind.reads.in_columns:
        return NoUnlabelled(
            f"{kind.reads.noun}s are read from folders that are their labels",
            "put these files into the folders of their classes",
        )
    if kind.classes_as_text:
        return NoUnlabelled(
            "its decoder reads the label's word in every step, of a soft label too",
            "give them labels first (limbeck predict)",
        )
    if not kind.labels_examples:
        return NoUnlabelled(
            "where its losses look is known from the labels",
            "give them labels first (limbeck predict)",
        )
    return None
