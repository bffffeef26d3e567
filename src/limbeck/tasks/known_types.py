"""All types of task by name, and the type a model's head is of. Part of `limbeck.tasks`."""

from __future__ import annotations

from functools import cache

from transformers import PretrainedConfig, PreTrainedModel

from limbeck.errors import LimbeckError
from limbeck.tasks.abstract_type import TASK_TYPES, TaskType
from limbeck.tasks.sentence import SENTENCE


def get_task_type(name: str) -> TaskType:
    """The type of that name; raises LimbeckError with the nearest name when there is none."""
    return TASK_TYPES.get(name, "kind")


def task_type_of(model: PreTrainedModel) -> TaskType:
    """The type of a model's head; sentence classification where it is none of the others.

    Raises:
        LimbeckError: a multi-label head, which no method here defines.
    """
    if getattr(model.config, "problem_type", None) == "multi_label_classification":
        raise LimbeckError(
            "the student's head is multi-label, and soft labels are defined over exclusive classes",
            "use single-label classification or regression",
        )
    return _by_class(type(model).__name__)


def kind_of_config(config: PretrainedConfig) -> TaskType:
    """The type of the head a saved model had; classification where the configuration names none."""
    names = getattr(config, "architectures", None) or [""]
    return _by_class(names[0])


def _by_class(name: str) -> TaskType:
    """By the classes that a type names as its heads, else by how its AutoModel's classes end."""
    types = [TASK_TYPES.get(known) for known in TASK_TYPES]
    named = [one for one in types if name in one.heads]
    ending = [one for one in types if name.endswith(_ending(one))]
    return next(iter((*named, *ending)), SENTENCE)


@cache
def _ending(task_type: TaskType) -> str:
    return str(task_type.auto.__name__).removeprefix("AutoModel")
