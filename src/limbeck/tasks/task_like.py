"""What types of task read of a task, and what they give back. Part of `limbeck.tasks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from limbeck.tasks.thresholds import Thresholds

Rows = dict[str, list[Any]]
Batch = Mapping[str, Tensor]
Labels = Sequence[Any] | np.ndarray
"""The label column of some rows."""
Kept = Mapping[str, Sequence[Any]]
"""Predictions and labels by row, as `Results.predictions` holds them."""

NO_PROMPTS: Mapping[str, str] = MappingProxyType({})
"""No texts to put before others than what a model has itself."""

MOST_PROBABILITIES = 5_000_000
"""Numbers that a file of predictions may hold beside classes; as text they are ten times as many bytes."""

LOWER_IS_BETTER = frozenset({"perplexity", "relative_error"})
"""Metrics, of any kind, whose best value is the smallest. None is ever a task's primary score."""


class Labelled(Protocol):
    """The part of a task that a model's head needs: class names in id order, () without."""

    @property
    def labels(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def regression(self) -> bool: ...  # noqa: D102


class TaskLike(Labelled, Protocol):
    """The part of a task that a kind reads (`limbeck.data.Task`)."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def text_columns(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def label_column(self) -> str: ...  # noqa: D102
    @property
    def primary(self) -> str: ...  # noqa: D102
    @property
    def thresholds(self) -> Thresholds: ...  # noqa: D102
    @property
    def metrics(self) -> tuple[str, ...]: ...  # noqa: D102
    def scores(self, predictions: np.ndarray, labels: np.ndarray) -> dict[str, float]: ...  # noqa: D102


@dataclass(frozen=True)
class Results:
    """A split's scores, and by example what was predicted and what was right.

    `predictions` holds lists of equal length, `index`, `prediction` and `label`, and of classes that a
    head decides `probabilities`; JSON can keep them. `thresholds`: of several labels a row, those that the
    predictions were made by, in id order.
    """

    scores: dict[str, float]
    predictions: dict[str, list[Any]]
    thresholds: tuple[float, ...] = ()
