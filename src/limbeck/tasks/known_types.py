"""All types of task by name, and the type a model's head is of. Part of `limbeck.tasks`."""

from __future__ import annotations

from functools import cache

from transformers import PretrainedConfig, PreTrainedModel

from limbeck.support.errors import LimbeckError
from limbeck.tasks.abstract_type import TASK_TYPES, TaskType
from limbeck.tasks.sentence import SENTENCE

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
