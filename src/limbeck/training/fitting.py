"""Whether a student can learn from its teachers at all: whose weights are whose, what classes are called.

Part of `limbeck.training`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import torch
from torch import nn
from transformers import PreTrainedModel

from limbeck.students import generic_labels, labels_of, spelling
from limbeck.support.errors import LimbeckError, Problem
from limbeck.teachers.teacher import Teacher

logger = logging.getLogger(__name__)

_SHOWN = 3


def pair_problems(
    student: PreTrainedModel, teachers: Sequence[Teacher], names: Sequence[str], *, compared: bool
) -> list[Problem]:
    """What makes a student and its teachers no pairs.

    Args:
        student: the model that is trained.
        teachers: whom it learns from, and `names`: what each is called.
        compared: whether their logits are compared, so that classes have to mean the same.
    """
    problems = []
    for teacher, name in zip(teachers, names, strict=True):
        called = "the teacher" if len(teachers) == 1 else f"teacher {name}"
        problems += _shared_weights(student, teacher, called)
        if compared:
            problems += _moved_classes(student, teacher, called)
    return problems


def _shared_weights(student: PreTrainedModel, teacher: Teacher, called: str) -> list[Problem]:
    """A teacher is frozen, and with it every weight that the student has in common with it."""
    theirs = {id(weight) for weight in teacher.model.parameters()}
    own = dict(student.named_parameters())
    shared = [name for name, weight in own.items() if id(weight) in theirs]
    if not shared:
        return []
    count = (
        f"all {len(own)} of its" if len(shared) == len(own) else f"{len(shared)} of its {len(own)}"
    )
    return [
        Problem(
            f"the student shares {count} weights with {called}, which is frozen, so they would not be "
            f"trained: {_some(shared)}",
            "give it weights of its own: limbeck.build_student(teacher, layers=…), or copy.deepcopy "
            "of what it takes from the teacher",
        )
    ]


def _moved_classes(student: PreTrainedModel, teacher: Teacher, called: str) -> list[Problem]:
    """A class that both know by name, at another output of the teacher than of the student."""
    own, theirs = labels_of(student.config), labels_of(teacher.config)
    if len(own) < 2 or generic_labels(own) or generic_labels(theirs):
        return []
    spelled = spelling(own, theirs)
    places = {spelled(label): place for place, label in enumerate(own)}
    if all(places.get(spelled(label), place) == place for place, label in enumerate(theirs)):
        return []
    return [
        Problem(
            f"{called} has its classes in another order than the student: {', '.join(theirs)} "
            f"against {', '.join(own)}",
            "reorder the rows of one model's head and its id2label; or, if the names are wrong, "
            "correct them in model.config.id2label",
        )
    ]


def check_trainable(student: PreTrainedModel) -> None:
    """Raise LimbeckError for a student that training would leave as it is; warn of one held in half precision."""
    trained = [weight for weight in student.parameters() if weight.requires_grad]
    if not trained:
        raise LimbeckError(
            "no weight of the student requires a gradient, so nothing of it would be trained; a model that "
            "has been a teacher is frozen, and so are copies of it",
            "student.requires_grad_(True)",
        )
    half = {weight.dtype for weight in trained} & {torch.bfloat16, torch.float16}
    if half:
        logger.warning(
            "weights of the student are %s, in which small updates are rounded away; load it with "
            "dtype=torch.float32, or call student.float(), and set TrainingArguments(bf16=True) for speed",
            " and ".join(sorted(str(one).removeprefix("torch.") for one in half)),
        )


def foreign_optimizer(optimizer: torch.optim.Optimizer | None, student: nn.Module) -> list[Problem]:
    """An optimiser that steps no weight of the student."""
    if optimizer is None:
        return []
    own = {id(weight) for weight in student.parameters()}
    if any(id(weight) in own for group in optimizer.param_groups for weight in group["params"]):
        return []
    return [
        Problem(
            "optimizers: the optimiser has none of the student's weights, so nothing of it would be trained",
            "make it from the parameters of the model that is passed as model=",
        )
    ]


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    rest = len(listed) - _SHOWN
    return ", ".join(listed[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
