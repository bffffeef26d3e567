"""All types of task by name, and the type a model's head is of. Part of `limbeck.tasks`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from transformers import PretrainedConfig, PreTrainedModel

from limbeck.functional.labels import NO_LABEL
from limbeck.support.errors import LimbeckError
from limbeck.tasks.abstract_type import TASK_TYPES, TaskType
from limbeck.tasks.classes import SENTENCE
from limbeck.tasks.task_like import TaskLike

_SEVERAL = "multi_label_classification"


def get_task_type(name: str) -> TaskType:
    """The type of that name; raises LimbeckError with the nearest name when there is none."""
    return TASK_TYPES.get(name, "kind")


def task_type_of(model: PreTrainedModel) -> TaskType:
    """The type of a model's head; sentence classification where it is none of the others.

    Raises:
        LimbeckError: several labels for what is no text, which no task type has.
    """
    problem = getattr(model.config, "problem_type", None)
    found = _by_class(type(model).__name__, problem)
    claimed = _claimed(model.config)
    if claimed is not None and claimed.auto is found.auto:
        return claimed
    if problem == _SEVERAL and not found.several_classes:
        raise LimbeckError(
            f"a {type(model).__name__} of several labels a row ({problem}) is of no task type",
            "use single-label classification or regression, or a model of texts",
        )
    return found


def kind_of_config(config: PretrainedConfig) -> TaskType:
    """The type of the head a saved model had; classification where the configuration names none."""
    names = getattr(config, "architectures", None) or [""]
    by_class = _by_class(names[0], getattr(config, "problem_type", None))
    return _claimed(config) or by_class


def _claimed(config: PretrainedConfig) -> TaskType | None:
    """The type that a configuration says by more than a class's name."""
    return next((one for one in map(TASK_TYPES.get, TASK_TYPES) if one.claims(config)), None)


def _by_class(name: str, problem: str | None) -> TaskType:
    """By the classes that a type names as its heads, else by how its AutoModel's classes end.

    Of several types with one head the one of that problem, else one that is of none.
    """
    types = [TASK_TYPES.get(known) for known in TASK_TYPES]
    named = [one for one in types if name in one.heads]
    ending = [one for one in types if name.endswith(_ending(one))]
    found = [*named, *ending]
    of_problem = [one for one in found if problem is not None and one.problem_type == problem]
    others = [one for one in found if one.problem_type is None]
    return next(iter((*of_problem, *others)), SENTENCE)


@cache
def _ending(task_type: TaskType) -> str:
    return str(task_type.auto.__name__).removeprefix("AutoModel")


# Rows without a label: which task types may train on them, and how a label column says so. A class
# id is −100 where there is none, and a number NaN (of several labels a row each of them), in
# loaded rows, in encoded ones and in batches alike.


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
