"""Several teachers' soft labels at once, each weighted by how right it is.

A prediction-layer term; reads logits, gives a scalar.
"""

import torch.nn.functional as F
from jaxtyping import Float, Integer
from torch import Tensor

from limbeck.functional.labels import has_label, mean_of_labelled, some_class
from limbeck.functional.reductions import (
    ExampleWeights,
    at_least_float32,
    require_positive,
    require_same_shape,
)


def error_weighted_cross_entropy(
    student_logits: Float[Tensor, "batch classes"],
    teacher_logits: Float[Tensor, "teachers batch outputs"],
    labels: Integer[Tensor, " batch"],
    *,
    temperature: float | int = 1.0,
    weights: ExampleWeights = None,
) -> Float[Tensor, ""]:
    """Σ_n CE(softmax(z_n/τ), softmax(z_S/τ)) / (1 + CE(y, softmax(z_n))), mean over the labelled examples.

    MT-BERT (Wu, Wu and Huang 2021), Eq. 1: a teacher that is wrong about an example counts less
    there. The weight is the label's cross-entropy of the teacher's prediction at τ = 1. Of an example without a label
    (−100) no error is known, so that it is not counted. `weights` (batch) say how much each example
    counts besides (`weighted_mean`).

    Raises:
        LimbeckError: the class counts differ, or the temperature is not above 0.
    """
    require_positive("temperature", temperature)
    _require_same_classes(student_logits, teacher_logits)
    student, teachers = at_least_float32(student_logits), at_least_float32(teacher_logits)
    log_student = (student / temperature).log_softmax(-1)
    distances = -((teachers / temperature).softmax(-1) * log_student).sum(-1)
    flat = teachers.flatten(0, 1)
    errors = F.cross_entropy(flat, some_class(labels).repeat(len(teachers)), reduction="none")
    weighted = (distances / (1 + errors.view_as(distances))).sum(0)
    return mean_of_labelled(weighted, has_label(labels), weights)


def error_weighted_mse(
    student_outputs: Float[Tensor, " batch"],
    teacher_outputs: Float[Tensor, "teachers batch"],
    labels: Float[Tensor, " batch"],
) -> Float[Tensor, ""]:
    """Σ_n (s − t_n)² / (1 + (t_n − y)²), mean over the labelled examples: the same for regression.

    The label of an example without one is NaN.

    Raises:
        LimbeckError: the batch sizes differ.
    """
    _require_same_classes(student_outputs, teacher_outputs)
    student, teachers = at_least_float32(student_outputs), at_least_float32(teacher_outputs)
    labelled = has_label(labels)
    numbers = at_least_float32(labels).nan_to_num(0.0)
    weights = 1 / (1 + (teachers - numbers) ** 2)
    return mean_of_labelled((weights * (student - teachers) ** 2).sum(0), labelled)


def _require_same_classes(student: Tensor, teachers: Tensor) -> None:
    require_same_shape(
        "soft label of several teachers",
        student.shape,
        teachers.shape[1:],
        "give all models the task's label set",
    )
