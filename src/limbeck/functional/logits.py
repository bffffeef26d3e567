"""Logits of classes compared otherwise than as one distribution: correlations, target and the others, z-scores."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from limbeck.functional import reductions
from limbeck.functional.labels import LABELS_FIX, has_label, mean_of_labelled, some_class
from limbeck.support.errors import LimbeckError

_SMALL = 1e-7


def standardize(logits: Float[Tensor, "*batch classes"]) -> Float[Tensor, "*batch classes"]:
    """Each example's logits as z-scores, (z − mean) / σ over its classes (Sun et al. 2024, Eq. 11).

    σ is the population's, over K as in the paper; the released code divides by K − 1, which is a
    temperature higher by √(K/(K−1)).
    """
    logits = reductions.at_least_float32(logits)
    spread = logits.std(-1, correction=0, keepdim=True)
    return (logits - logits.mean(-1, keepdim=True)) / (spread + _SMALL)


def dist(
    student_logits: Float[Tensor, "batch classes"],
    teacher_logits: Float[Tensor, "batch classes"],
    *,
    beta: float | int = 2.0,
    gamma: float | int = 2.0,
    temperature: float | int = 1.0,
) -> Float[Tensor, ""]:
    """DIST (Huang et al. 2022): τ²·(β·L_inter + γ·L_intra) of the softened predictions Y.

    L_inter = 1 − mean over examples of ρ(Y_S[i, :], Y_T[i, :]) and L_intra = 1 − mean over classes of
    ρ(Y_S[:, c], Y_T[:, c]), ρ Pearson's correlation; ρ of a constant row or column is 0.

    Raises:
        LimbeckError: the class counts differ, or the temperature is not above 0.
    """
    reductions.require_positive("temperature", temperature)
    student, teacher = _same("dist", student_logits, teacher_logits)
    ours, theirs = (student / temperature).softmax(-1), (teacher / temperature).softmax(-1)
    inter = 1 - _pearson(ours, theirs).mean()
    intra = 1 - _pearson(ours.T, theirs.T).mean()
    return temperature**2 * (beta * inter + gamma * intra)


def dkd(
    student_logits: Float[Tensor, "batch classes"],
    teacher_logits: Float[Tensor, "batch classes"],
    labels: Int[Tensor, " batch"],
    *,
    alpha: float | int = 1.0,
    beta: float | int = 8.0,
    temperature: float | int = 4.0,
    weights: reductions.ExampleWeights = None,
) -> Float[Tensor, ""]:
    """Decoupled KD (Zhao et al. 2022, Eq. 7): τ²·(α·TCKD + β·NCKD), mean over the labeled examples.

    TCKD = KL(b_T ‖ b_S), b the label's probability and all others' together; NCKD = KL(p̂_T ‖ p̂_S),
    p̂ the distribution over the other classes alone. With two classes NCKD is 0. The label −100 marks
    an unlabeled example. `weights` (batch) are the weights of the examples (`weighted_mean`).

    Raises:
        LimbeckError: the class counts differ, or the temperature is not above 0.
    """
    reductions.require_positive("temperature", temperature)
    student, teacher = _same("dkd", student_logits, teacher_logits)
    ours, theirs = (student / temperature).log_softmax(-1), (teacher / temperature).log_softmax(-1)
    # Nothing here depends on values for its shape: an accelerator is not waited for.
    label = some_class(labels).unsqueeze(1)
    at_label = torch.zeros_like(ours, dtype=torch.bool).scatter(1, label, True)
    target = _kl(_binary(ours, label, at_label), _binary(theirs, label, at_label))
    others = _kl(_others(ours, at_label), _others(theirs, at_label))
    total = mean_of_labelled(alpha * target + beta * others, has_label(labels), weights)
    return temperature**2 * total


def _same(what: str, student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
    sides = reductions.comparable(what, student, teacher, LABELS_FIX)
    if student.shape[-1] < 2:
        raise LimbeckError(f"{what}: there is one output, and classes are compared", "use mse")
    return sides


def _pearson(one: Tensor, other: Tensor) -> Tensor:
    """The correlation of each row."""
    ours, theirs = (side - side.mean(-1, keepdim=True) for side in (one, other))
    return F.cosine_similarity(ours, theirs, dim=-1, eps=1e-8)


def _binary(logs: Tensor, label: Tensor, at_label: Tensor) -> Tensor:
    """log (p_label, all others' together), (batch, 2)."""
    others = logs.masked_fill(at_label, float("-inf")).logsumexp(-1, keepdim=True)
    return torch.cat([logs.gather(1, label), others], dim=-1)


def _others(logs: Tensor, at_label: Tensor) -> Tensor:
    """log p̂ over the other classes; 0 at the label on both sides, which adds nothing."""
    return logs.masked_fill(at_label, float("-inf")).log_softmax(-1).masked_fill(at_label, 0.0)


def _kl(student: Tensor, teacher: Tensor) -> Tensor:
    """KL of log distributions, by example."""
    return F.kl_div(student, teacher, log_target=True, reduction="none").sum(-1)
