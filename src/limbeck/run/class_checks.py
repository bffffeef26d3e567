"""Whether a model that is to be scored has the classes of the rows, in their order. Part of `limbeck.run`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from limbeck import preflight
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import Task

logger = logging.getLogger(__name__)


def class_names(task: Task, model: PreTrainedModel, *, side: str) -> list[Problem]:
    """Names that prove nothing about the order of the classes, as warnings.

    Raises:
        LimbeckError: another number of classes than the rows', or a class of theirs at another output.
    """
    found = preflight.check_labels(side, model.config, task)
    if errors := preflight.errors_of(found):
        raise LimbeckError(errors)
    return found


def resolve_class_order(
    task: Task,
    unproven: Sequence[Problem],
    outputs: np.ndarray,
    labels: Sequence[Any],
    split: str,
    *,
    side: str,
) -> None:
    """Say what `class_names` could not prove, if the outputs are in the order of the rows' classes.

    Raises:
        LimbeckError: they fit another order much better.
    """
    if not unproven:
        return
    given = preflight.TeacherOutputs(outputs, labels, f"measured on {split}")
    if found := preflight.check_class_order(task, given, side=side):
        raise LimbeckError(found)
    for problem in unproven:
        logger.warning("%s (%s)", problem.message, problem.fix)
