"""The terms between a student and whoever teaches it, bound to their shapes. Part of `limbeck.training`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel

from limbeck.data.row_facts import facts_of
from limbeck.objectives import (
    CurriculumSpec,
    ModelShape,
    Objectives,
    Shape,
    TeamObjectives,
    TermSpec,
    WeightingSettings,
)
from limbeck.students import labels_of
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TaskType
from limbeck.teachers import Team, members_of
from limbeck.teachers.teacher import Teacher
from limbeck.training.head import head_of


def objectives_for(
    student: PreTrainedModel,
    teacher: Teacher | Team | None,
    specs: dict[str, TermSpec],
    curriculum: CurriculumSpec | None,
    *,
    kind: TaskType,
    rows: int,
    examples: Any = None,
    weighting: WeightingSettings | None = None,
    min_confidence: float | None = None,
    unlabelled_weight: float = 1.0,
) -> Objectives | TeamObjectives:
    """The terms between a student and whoever teaches it.

    `examples`: the training rows, for terms that count their classes.

    Raises:
        LimbeckError: every term that cannot be built for these models, with its reason.
    """
    own = ModelShape.of(student)
    teachers = [ModelShape.of(member.model) for member in members_of(teacher)] or [own]
    shape = Shape(
        own, own, kind, rows, labels_of(student.config), _balanced(specs, student, kind, examples)
    )
    shapes = [replace(shape, teacher=other) for other in teachers]
    if curriculum is not None and curriculum.then == "head" and not head_of(student):
        raise LimbeckError(
            "curriculum.then: head: the student has no weights of its own behind its last layer",
            "train all of it, curriculum.then=student",
        )
    if isinstance(teacher, Team) and teacher.separate:
        return TeamObjectives(
            specs,
            shapes,
            teacher.names,
            curriculum,
            weighting,
            min_confidence,
            unlabelled_weight,
        )
    return Objectives(specs, shapes[0], curriculum, weighting, min_confidence, unlabelled_weight)


def _balanced(
    specs: dict[str, TermSpec], student: PreTrainedModel, kind: TaskType, examples: Any
) -> Tensor | None:
    """The weights by which all classes count alike; None where no term asks, or nobody knows the rows."""
    if not kind.weighs_classes or not any(spec.counts_classes for spec in specs.values()):
        return None
    labels = None if examples is None else facts_of(examples).label_column
    return None if labels is None else kind.balanced_weights(labels, student.config.num_labels or 0)


def index_bound(rows: Any) -> int:
    """One more than the largest `index` of the training examples; 0 where they have none."""
    numbers = facts_of(rows).numbers
    return 0 if numbers is None or not len(numbers) else int(numbers.max()) + 1
