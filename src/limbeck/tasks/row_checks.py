"""What a task type refuses: outputs of another shape, no rows, no labels. Part of `limbeck.tasks`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from limbeck.support.errors import LimbeckError
from limbeck.tasks.task_like import Batch, Labels, TaskLike


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
