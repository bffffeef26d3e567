"""What a model was shipped with that decides how rows are read or scored: thresholds, prompts.

Part of `limbeck.run`.
"""

from __future__ import annotations

from dataclasses import replace

from transformers import PretrainedConfig

from limbeck.students import labels_of
from limbeck.tasks import Task
from limbeck.tasks.thresholds import USUAL, thresholds_of


def decided_by(task: Task, config: PretrainedConfig) -> Task:
    """The task as a model has it: with its prompts, and of several labels a row its thresholds, ½ where it has none.

    Raises:
        LimbeckError: thresholds that are none.
    """
    task = replace(task, kind=task.kind.of_model(config))
    if not task.kind.several_classes:
        return task
    return replace(task, thresholds=thresholds_of(config) or USUAL)


def thresholds_by_class(config: PretrainedConfig) -> dict[str, float] | None:
    """A model's thresholds by the names of its classes; None where it has none."""
    found = thresholds_of(config)
    return None if found is None else dict(zip(labels_of(config), found, strict=True))
