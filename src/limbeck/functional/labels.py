"""Hard, soft and pseudo-labels, one or several a row: the student's distribution against labels or the teacher's.

The prediction-layer terms of almost every method; read logits, give a scalar.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from limbeck.functional import reductions
from limbeck.support.errors import LimbeckError

# How much each class weighs where classes are of very different sizes, and easy examples less than
# hard ones.
#
# Read by the hard labels of `limbeck.functional`.


LABELS_FIX = "give both models the task's label set"
ClassWeights = Float[Tensor, " classes"] | None
"""Factors on the loss of each class; None: all equal."""


def balanced_weights(rows: Integer[Tensor, " classes"]) -> Float[Tensor, " classes"]:
    """n / (K·n_c): every class adds as much as every other (King and Zeng 2001; scikit-learn's "balanced").

    `rows` n_c are the labeled examples of each class, n their sum and K the number of classes that have
    any. The mean weight of an example is 1. A class without examples weighs 1.
    """
    counts = rows.to(torch.float32)
    present = counts > 0
    even = counts.sum() / present.sum().clamp(min=1)
    return torch.where(present, even / counts.clamp(min=1), 1.0)


def balanced_positive_weights(
    positives: Integer[Tensor, " classes"], rows: int
) -> Float[Tensor, " classes"]:
    """(n − n_c) / n_c: in each class, its examples weigh as much as all other examples.

    `positives` n_c are the examples of each class among n `rows` with labels. A class of none or of all
    weighs 1.
    """
    counts = positives.to(torch.float32)
    usable = (counts > 0) & (counts < rows)
    return torch.where(usable, (rows - counts) / counts.clamp(min=1), 1.0)


def focal_factor(
    log_probability: Float[Tensor, "*shape"], gamma: float | int
) -> Float[Tensor, "*shape"]:
    """(1 − p)^γ of p = exp(log p): the weight of an example, small if the model is sure (Lin et al. 2017, Eq. 4).

    Raises:
        LimbeckError: γ is below 0.
    """
    if gamma < 0:
        raise LimbeckError(f"gamma is {gamma}", "give 0 or more; the paper's is 2")
    # A root has no gradient at 0.
    unsure = -torch.expm1(log_probability)
    return unsure.clamp(min=reductions.SMALLEST_PROBABILITY) ** gamma


def _at_temperature(
    student_logits: Tensor, teacher_logits: Tensor, temperature: float | int
) -> tuple[Tensor, Tensor]:
    reductions.require_positive("temperature", temperature)
    student, teacher = reductions.comparable(
        "soft label", student_logits, teacher_logits, LABELS_FIX
    )
    if temperature == 1.0:
        return student, teacher
    return student / temperature, teacher / temperature


def hard_cross_entropy(
    logits: Float[Tensor, "batch classes"],
    labels: Integer[Tensor, " batch"] | Float[Tensor, "batch classes"],
    *,
    class_weights: ClassWeights = None,
    gamma: float | int = 0.0,
) -> Float[Tensor, ""]:
    """−w_y·(1 − p_y)^γ·log p_y of p = softmax(z) and label y, mean over labeled examples (−100 is unlabeled).

    `labels` may be shares of the classes too: −Σ_c y_c·w_c·(1 − p_c)^γ·log p_c, where NaN is unlabeled. γ above 0 is
    the focal loss (Lin et al. 2017, Eq. 5, over softmax's classes instead of a sigmoid's two). The mean is
    over the number of labeled examples, while torch's own weighted loss divides by Σ w_y of the batch: an example's
    contribution does not depend on the classes of its neighbors, so that the batches of a step add up to one
    large batch.

    Raises:
        LimbeckError: γ is below 0.
    """
    logits, known = reductions.at_least_float32(logits), has_label(labels)
    if labels.is_floating_point():
        # A NaN would reach the gradient, also for an example that does not count.
        labels = labels.to(logits.dtype).masked_fill(~known.unsqueeze(-1), 0.0)
    if class_weights is None and not gamma:
        return mean_of_labelled(F.cross_entropy(logits, labels, reduction="none"), known)
    if not labels.is_floating_point():
        return mean_of_labelled(
            class_losses(logits, some_class(labels), class_weights, gamma), known
        )
    each = _weighted_surprise(logits.log_softmax(-1), gamma) * labels
    return mean_of_labelled(
        (each if class_weights is None else each * class_weights).sum(-1), known
    )


def class_losses(
    logits: Float[Tensor, "*batch classes"],
    labels: Integer[Tensor, "*batch"],
    class_weights: ClassWeights,
    gamma: float | int,
) -> Float[Tensor, "*batch"]:
    """−w_y·(1 − p_y)^γ·log p_y of each row of logits and its class."""
    right = (
        reductions.at_least_float32(logits)
        .log_softmax(-1)
        .gather(-1, labels.unsqueeze(-1))
        .squeeze(-1)
    )
    each = _weighted_surprise(right, gamma)
    return each if class_weights is None else each * class_weights[labels]


def _weighted_surprise(
    logs: Float[Tensor, "*shape"], gamma: float | int
) -> Float[Tensor, "*shape"]:
    return -logs * focal_factor(logs, gamma) if gamma else -logs


def hard_mse(
    outputs: Float[Tensor, " batch"],
    labels: Float[Tensor, " batch"] | Integer[Tensor, " batch"] | Bool[Tensor, " batch"],
) -> Float[Tensor, ""]:
    """(z − y)², mean over the examples that have a number y (NaN is missing): a regression's labels."""
    known = has_label(labels)
    errors = (reductions.at_least_float32(outputs) - labels.float().where(known, 0.0)) ** 2
    return mean_of_labelled(errors, known)


def soft_cross_entropy(
    student_logits: Float[Tensor, "batch classes"],
    teacher_logits: Float[Tensor, "batch classes"],
    *,
    temperature: float | int = 1.0,
    scale_by_t2: bool = False,
    weights: reductions.ExampleWeights = None,
) -> Float[Tensor, ""]:
    """−Σ_c softmax(z_T/τ)·log softmax(z_S/τ), mean over the batch.

    Internal-KD Eq. 1 with λ = 0; SKDBERT App. C, 𝓛_d. `scale_by_t2` multiplies by τ², which keeps
    the size of the gradient as τ grows (Hinton et al. 2015). The log-softmax is taken from logits
    and needs no floor; a floor would stop the gradient of a confidently wrong student. `weights`
    (batch) are the weights of the examples (`weighted_mean`).

    Raises:
        LimbeckError: the class counts differ, or the temperature is not above 0.
    """
    student, teacher = _at_temperature(student_logits, teacher_logits, temperature)
    if weights is None:
        loss = F.cross_entropy(student, teacher.softmax(-1))
    else:
        loss = reductions.weighted_mean(
            F.cross_entropy(student, teacher.softmax(-1), reduction="none"), weights
        )
    return loss * temperature**2 if scale_by_t2 else loss


def soft_kl(
    student_logits: Float[Tensor, "batch classes"],
    teacher_logits: Float[Tensor, "batch classes"],
    *,
    temperature: float | int = 1.0,
    scale_by_t2: bool = False,
    weights: reductions.ExampleWeights = None,
) -> Float[Tensor, ""]:
    """KL(softmax(z_T/τ) ‖ softmax(z_S/τ)), mean over the batch, optionally times τ².

    `soft_cross_entropy` minus the teacher's entropy: the same gradient for the student, and 0 when
    it agrees. `weights` as there.

    Raises:
        LimbeckError: the class counts differ, or the temperature is not above 0.
    """
    student, teacher = _at_temperature(student_logits, teacher_logits, temperature)
    logs = student.log_softmax(-1), teacher.log_softmax(-1)
    if weights is None:
        loss = F.kl_div(*logs, log_target=True, reduction="batchmean")
    else:
        each = F.kl_div(*logs, log_target=True, reduction="none").sum(-1)
        loss = reductions.weighted_mean(each, weights)
    return loss * temperature**2 if scale_by_t2 else loss


def pseudo_label(
    student_logits: Float[Tensor, "batch classes"],
    teacher_logits: Float[Tensor, "batch classes"],
    *,
    weights: reductions.ExampleWeights = None,
) -> Float[Tensor, ""]:
    """−log softmax(z_S)[argmax z_T], mean over the batch: the teacher's class as a hard label.

    Self-training (Scudder 1965), with a neural student Lee 2013, Eq. 15–16 (there the student is its
    own teacher). Classes of equal logits, as of votes that are tied, share the label. `weights` as
    of `soft_cross_entropy`.

    Raises:
        LimbeckError: the class counts differ.
    """
    student, teacher = _at_temperature(student_logits, teacher_logits, 1.0)
    likeliest = teacher == teacher.amax(-1, keepdim=True)
    logs = student.log_softmax(-1).masked_fill(~likeliest, 0.0)
    return reductions.weighted_mean(-logs.sum(-1) / likeliest.sum(-1), weights)


# Examples without a label: how labels mark them, and the mean over the others. A class id is −100
# if it is missing, as in torch's own losses, and a number is NaN. Every function of labels counts
# the examples that have one; nothing here waits for the device.


NO_LABEL = -100
"""The class id of an example without a label."""


def has_label(labels: Tensor) -> Tensor:
    """Which examples have a label, (B,) of bool: by class ids or numbers (B,), or shares of the classes (B, C)."""
    if labels.is_floating_point():
        known = ~labels.isnan()
        return known if labels.dim() == 1 else known.flatten(1).all(1)
    return labels != NO_LABEL


def some_class(labels: Tensor) -> Tensor:
    """The class ids (B,), 0 if there is no label: a place to look at whose value is not counted."""
    return labels.masked_fill(labels == NO_LABEL, 0)


def mean_of_labelled(values: Tensor, labelled: Tensor, weights: Tensor | None = None) -> Tensor:
    """The mean of `values` (B,) over the examples that are `labelled` (B,); 0 where none is.

    The values of other examples have no effect, not even on the gradient or if they are infinite. `weights` (B,)
    multiply the values as in `weighted_mean`: Σ w·l over the number of labeled examples.
    """
    counted = labelled if weights is None else labelled & (weights != 0)
    values = torch.where(counted, values, values.new_zeros(()))
    if weights is not None:
        values = values * reductions.at_least_float32(weights)
    return values.sum() / labelled.sum().clamp(min=1)


# Several teachers' soft labels at once, each weighted by how right it is.
#
# A prediction-layer term; reads logits, gives a scalar.


def error_weighted_cross_entropy(
    student_logits: Float[Tensor, "batch classes"],
    teacher_logits: Float[Tensor, "teachers batch outputs"],
    labels: Integer[Tensor, " batch"],
    *,
    temperature: float | int = 1.0,
    weights: reductions.ExampleWeights = None,
) -> Float[Tensor, ""]:
    """Σ_n CE(softmax(z_n/τ), softmax(z_S/τ)) / (1 + CE(y, softmax(z_n))), mean over the labeled examples.

    MT-BERT (Wu, Wu and Huang 2021), Eq. 1: a teacher that is wrong about an example counts less
    there. The weight is the label's cross-entropy of the teacher's prediction at τ = 1. An example without a label
    (−100) has no known error, so that it is not counted. `weights` (batch) are further weights of the
    examples (`weighted_mean`).

    Raises:
        LimbeckError: the class counts differ, or the temperature is not above 0.
    """
    reductions.require_positive("temperature", temperature)
    student, teachers = _with_teachers(student_logits, teacher_logits)
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
    """Σ_n (s − t_n)² / (1 + (t_n − y)²), mean over the labeled examples: the same for regression.

    The label of an example without one is NaN.

    Raises:
        LimbeckError: the batch sizes differ.
    """
    student, teachers = _with_teachers(student_outputs, teacher_outputs)
    labelled = has_label(labels)
    numbers = reductions.at_least_float32(labels).nan_to_num(0.0)
    weights = 1 / (1 + (teachers - numbers) ** 2)
    return mean_of_labelled((weights * (student - teachers) ** 2).sum(0), labelled)


def _with_teachers(student: Tensor, teachers: Tensor) -> tuple[Tensor, Tensor]:
    fix = "give all models the task's label set"
    what = "soft label of several teachers"
    reductions.require_same_shape(what, student.shape, teachers.shape[1:], fix)
    return reductions.at_least_float32(student), reductions.at_least_float32(teachers)


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
    """−p_T·log p_S − (1 − p_T)·log(1 − p_S) of p = σ(z/τ), mean over classes and batch, optionally times τ².

    `soft_cross_entropy` of each class's two outcomes. `weights` (batch) are the weights of the examples.

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
    """KL((p_T, 1 − p_T) ‖ (p_S, 1 − p_S)) of p = σ(z/τ), mean over classes and batch, optionally times τ².

    One class's part of multi-label distillation (Yang et al. 2023, multi-label logits distillation, L_MLD): 0
    where the student agrees, with the gradient of `binary_soft_cross_entropy`.

    Raises:
        LimbeckError: the class counts differ, or the temperature is not above 0.
    """
    student, teacher = _at_temperature(student_logits, teacher_logits, temperature)
    # Differences of logarithms: near the teacher the difference of the cross-entropies has no digits left.
    of_class = F.logsigmoid(teacher) - F.logsigmoid(student)
    others = F.logsigmoid(-teacher) - F.logsigmoid(-student)
    share = teacher.sigmoid()
    each = share * of_class + (1 - share) * others
    loss = reductions.weighted_mean(each.mean(-1), weights)
    return loss * temperature**2 if scale_by_t2 else loss
