"""How a task type is to weigh the loss of labels. Part of `limbeck.tasks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import torch
from torch import Tensor

from limbeck.functional.labels import NO_LABEL
from limbeck.support.errors import LimbeckError
from limbeck.tasks.task_like import Batch, Labels, TaskLike


class HardRule(NamedTuple):
    """How much each class counts (C,), None for all alike; and the focal loss's γ, 0 for plain labels."""

    class_weights: Tensor | None = None
    gamma: float = 0.0


PLAIN = HardRule()


# How a task type is to compare soft labels.


class AtTemperature(TypedDict):
    """What every soft label of `limbeck.functional` takes."""

    temperature: float
    scale_by_t2: bool


class SoftRule(NamedTuple):
    """How a soft label is compared: `soft_cross_entropy` or `soft_kl`, and at what temperature.

    `tempered`: a regression's outputs are divided by it too.
    """

    compare: str = "soft_cross_entropy"
    temperature: float = 1.0
    scale_by_t2: bool = False
    tempered: bool = False

    @property
    def at(self) -> AtTemperature:
        """The temperature and what it does, as keyword arguments of a loss."""
        return AtTemperature(temperature=self.temperature, scale_by_t2=self.scale_by_t2)


# Columns of encoded rows and of batches that limbeck adds.


EXAMPLE_WEIGHTS = "example_weights"
"""The column of a batch that says how much each example counts (B,), for the terms that learn from a
teacher's logits; without it all count alike."""

CUT = "__truncated__"
"""The column in which `TaskType.encode` says whether an example lost text to the length limit."""

ROW = "row"
"""The column that says which row of the split an encoded example is a part of, where one row can
become several; the examples are then numbered again."""


# What a task type refuses: outputs of another shape, no rows, no labels.


def check_outputs(task: TaskLike, outputs: np.ndarray, expected: tuple[int, ...]) -> None:
    """Raise LimbeckError for outputs of another shape, or that are not finite."""
    if outputs.shape != expected:
        wanted = expected[-1] if len(expected) > 1 else 1
        raise LimbeckError(
            f"task {task.name!r}: predictions of shape {outputs.shape}, expected {expected}",
            f"use a model with {wanted} output{'s' if wanted > 1 else ''}",
        )
    if not np.isfinite(outputs).all():
        raise LimbeckError(
            f"task {task.name!r}: the predictions hold values that are not finite",
            "the model has diverged: lower lr, or train in fp32",
        )


def need_rows(task: TaskLike, labels: Labels) -> None:
    """Raise LimbeckError for no rows at all."""
    if len(labels) == 0:
        raise LimbeckError(f"task {task.name!r}: there are no labels", "check the split")


def need_labels(batch: Batch, names: Sequence[str]) -> None:
    """Raise LimbeckError for a batch without labels."""
    missing = [name for name in names if name not in batch]
    if missing:
        raise LimbeckError(
            f"the batch has no {' and no '.join(missing)}", "score or train on labelled rows"
        )


# Outputs and labels of batches as arrays and padded columns.


def as_array(outputs: Tensor) -> np.ndarray:
    """Outputs of a batch on the CPU, floats in float32."""
    moved = outputs.detach().cpu()
    return (moved.float() if moved.is_floating_point() else moved).numpy()


def join(outputs: Iterable[np.ndarray]) -> np.ndarray:
    """Outputs of several batches under each other, narrower ones widened with −100."""
    parts = list(outputs)
    if parts[0].ndim < 2:
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    widened = [
        np.pad(
            part,
            [(0, 0), (0, width - part.shape[1]), *[(0, 0)] * (part.ndim - 2)],
            constant_values=NO_LABEL,
        )
        for part in parts
    ]
    return np.concatenate(widened)


def pad_column(
    values: Sequence[Sequence[int]], width: int, fill: int, *, left: bool = False
) -> Tensor:
    """Lists of different lengths as one int64 tensor (B, width)."""
    padded = torch.full((len(values), width), fill, dtype=torch.int64)
    for row, value in enumerate(values):
        start = width - len(value) if left else 0
        padded[row, start : start + len(value)] = torch.tensor(value, dtype=torch.int64)
    return padded


def truncated(encoded: Any) -> list[bool]:
    """Which examples of a tokenizer's output lost text."""
    # Both texts' leftovers hang on the encoding, so nothing is tokenised twice to count them.
    return [bool(encoding.overflowing) for encoding in encoded.encodings]
