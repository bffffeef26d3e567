"""What a labeller returned of a batch, looked at before it is stored. Part of `limbeck.teachers.outputs`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASK_TYPES
from limbeck.teachers.labeller import Labeller
from limbeck.teachers.outputs.columns import LOGITS

PROBABILITIES = "probabilities"
VOTES = "votes"
DECIDING = (PROBABILITIES, LOGITS, VOTES)
"""By which outputs a row's class is decided, the first that is there."""
_ROUNDING = 1e-2
"""Of probabilities in bf16."""


def checked(
    labeller: Labeller, name: str, scores: Mapping[str, np.ndarray], count: int
) -> np.ndarray:
    """One output of a batch.

    Raises:
        LimbeckError: what is wrong with it.
    """
    if not isinstance(scores, Mapping):
        raise LimbeckError(
            f"{labeller.name}: score returned a {type(scores).__name__}, no outputs by their names",
            'return {"probabilities": array of a row for each text}',
        )
    if name not in scores:
        raise LimbeckError(
            f"{labeller.name}: asked for {name}, and it returned {', '.join(scores) or 'nothing'}",
            "ask for what it returns with --outputs",
        )
    value = np.asarray(scores[name])
    if len(value) != count:
        raise LimbeckError(
            f"{labeller.name}: {name} of {len(value)} rows, asked about {count}",
            "a labeller must return a value for each row",
        )
    parts = value if value.dtype == object else [value]
    if not all(np.isfinite(part).all() for part in parts):
        raise LimbeckError(
            f"{labeller.name}: {name} holds a value that is not finite, or beyond the type it is stored in",
            "check the model, and whether it was asked in bf16 where it needs --precision fp32",
        )
    if name in DECIDING and _decides(labeller.kind):
        _check_deciding(labeller, name, value)
    return value


def _decides(kind: str) -> bool:
    """Whether rows of a task type are of one class each, or have one number, that outputs come to."""
    known = TASK_TYPES.get(kind) if kind in TASK_TYPES else None
    return known is not None and known.labels_examples and not known.classes_as_text


def _check_deciding(labeller: Labeller, name: str, value: np.ndarray) -> None:
    """Raise LimbeckError for outputs (B, …) that are not one for each class, or are no probabilities."""
    width = len(labeller.classes) or 1
    if value.dtype == object or value.shape[1:] != (width,):
        classes = f"{width} classes" if labeller.classes else "no classes, but a number a row"
        raise LimbeckError(
            f"{labeller.name}: {name} is {value.shape}, and it has {classes}",
            f"return an array of shape ({len(value)}, {width})",
        )
    if name == PROBABILITIES and not ((value >= 0) & (value <= 1 + _ROUNDING)).all():
        raise LimbeckError(
            f"{labeller.name}: {name} from {value.min():g} to {value.max():g}, which are none",
            "return them as logits, or between 0 and 1",
        )
