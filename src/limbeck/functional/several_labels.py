"""Hard and soft labels where an example may be of several classes, or of none: each class is a question of its own.

Sigmoid probabilities p = σ(z) in the place of softmax's; read logits, give a scalar. The mean is over classes
too, as in torch's and Hugging Face's loss: hard and soft label are of one size, and with 0 and 1 as the teacher's
probabilities they are the same number.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from limbeck.functional import reductions
from limbeck.functional.labels import ClassWeights, focal_factor, has_label, mean_of_labelled


def binary_cross_entropy(
    logits: Float[Tensor, "batch classes"],
    labels: Float[Tensor, "batch classes"],
    *,
    positive_weights: ClassWeights = None,
    gamma: float | int = 0.0,
) -> Float[Tensor, ""]:
    """−w_c·y_c·log p_c − (1 − y_c)·log(1 − p_c), mean over classes and the examples that have labels.

    `labels` y are 1 for the classes of an example and 0 for the others, or shares between; NaN is no label. γ
    above 0 multiplies each part by (1 − p_t)^γ of its own probability p_t, which is p_c or 1 − p_c: the focal
    loss (Lin et al. 2017, Eq. 5), whose mean here is over all classes and not over the positive ones alone.

    Raises:
        LimbeckError: the shapes differ, or γ is below 0.
    """
    reductions.require_same_shape(
        "labels", logits.shape, labels.shape, "give each row 0 or 1 for every class"
    )
    logits, known = reductions.at_least_float32(logits), has_label(labels)
    labels = labels.to(logits.dtype).masked_fill(~known.unsqueeze(-1), 0.0)
    if not gamma:
        each = F.binary_cross_entropy_with_logits(
            logits, labels, reduction="none", pos_weight=positive_weights
        )
        return mean_of_labelled(each.mean(-1), known)
    positive, negative = F.logsigmoid(logits), F.logsigmoid(-logits)
    of_class = -labels * positive * focal_factor(positive, gamma)
    if positive_weights is not None:
        of_class = of_class * positive_weights
    others = -(1 - labels) * negative * focal_factor(negative, gamma)
    return mean_of_labelled((of_class + others).mean(-1), known)


def binary_soft_cross_entropy(
    student_logits: Float[Tensor, "batch classes"],
    teacher_logits: Float[Tensor, "batch classes"],
    *,
    temperature: float | int = 1.0,
    scale_by_t2: bool = False,
    weights: reductions.ExampleWeights = None,
) -> Float[Tensor, ""]:
    """−p_T·log p_S − (1 − p_T)·log(1 − p_S) of p = σ(z/τ), mean over classes and batch, times τ² if asked.

    `soft_cross_entropy` of each class's two outcomes. `weights` (batch) say how much each example counts.

    Raises:
        LimbeckError: the class counts differ, or the temperature is not above 0.
    """
    student, teacher = _at_temperature(student_logits, teacher_logits, temperature)
    each = F.binary_cross_entropy_with_logits(student, teacher.sigmoid(), reduction="none")
    loss = reductions.weighted_mean(each.mean(-1), weights)
    return loss * temperature**2 if scale_by_t2 else loss


def binary_kl(
    student_logits: Float[Tensor, "batch classes"],
    teacher_logits: Float[Tensor, "batch classes"],
    *,
    temperature: float | int = 1.0,
    scale_by_t2: bool = False,
    weights: reductions.ExampleWeights = None,
) -> Float[Tensor, ""]:
    """KL((p_T, 1 − p_T) ‖ (p_S, 1 − p_S)) of p = σ(z/τ), mean over classes and batch, times τ² if asked.

    One class's part of multi-label distillation (Yang et al. 2023, multi-label logits distillation, L_MLD): 0
    where the student agrees, with the gradient of `binary_soft_cross_entropy`.

    Raises:
        LimbeckError: the class counts differ, or the temperature is not above 0.
    """
    student, teacher = _at_temperature(student_logits, teacher_logits, temperature)
    # Differences of logarithms: near the teacher that of the cross-entropies has no digits left.
    of_class = F.logsigmoid(teacher) - F.logsigmoid(student)
    others = F.logsigmoid(-teacher) - F.logsigmoid(-student)
    share = teacher.sigmoid()
    each = share * of_class + (1 - share) * others
    loss = reductions.weighted_mean(each.mean(-1), weights)
    return loss * temperature**2 if scale_by_t2 else loss


def _at_temperature(
    student: Tensor, teacher: Tensor, temperature: float | int
) -> tuple[Tensor, Tensor]:
    reductions.require_positive("temperature", temperature)
    reductions.require_same_shape(
        "soft label", student.shape, teacher.shape, "give both models the task's label set"
    )
    return reductions.at_least_float32(student) / temperature, reductions.at_least_float32(
        teacher
    ) / temperature
