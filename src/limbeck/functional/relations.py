"""Relations between tokens compared, when head counts or widths of the two sides differ.

Follows capture of queries, keys or values, their features split into relation heads.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from limbeck.functional.checks import require_same_shape, require_shape
from limbeck.functional.reductions import (
    SMALLEST_LOG_PROBABILITY,
    TokenMask,
    at_least_float32,
    mean_over_batch,
    without_autocast,
)


def _log_relations(features: Tensor, valid: Tensor) -> Tensor:
    """log softmax(XXᵀ/√r) over the valid keys: [B, A, N, r] → [B, A, N, N]; ≈ −3e38 outside."""
    # Masked before the product: 0·∞ in its gradient would be NaN.
    features = at_least_float32(features).masked_fill(~valid[:, None, :, None], 0.0)
    with without_autocast(features):
        scores = (features * features.shape[-1] ** -0.5) @ features.transpose(-1, -2)
    # The least number, not −∞: a row without any valid key then stays finite.
    least = torch.finfo(scores.dtype).min
    return scores.masked_fill(~valid[:, None, None, :], least).log_softmax(-1)


def relation_kl(
    student: Float[Tensor, "batch heads tokens student_width"],
    teacher: Float[Tensor, "batch heads tokens teacher_width"],
    mask: TokenMask,
) -> Float[Tensor, ""]:
    """KL(R_T ‖ R_S) with R = softmax(XXᵀ/√r); sums and means as in `attention_kl`.

    MiniLM's value relation; MiniLMv2's query, key and value relations. Only the number of relation
    heads must agree: r is each side's own width. Probabilities are floored at 1e-12 in the
    logarithm.

    Raises:
        LimbeckError: batch, heads or tokens differ, or the mask does not fit.
    """
    require_same_shape(
        "relation_kl (batch, heads, tokens)",
        student.shape[:-1],
        teacher.shape[:-1],
        "split the features of both sides into the same number of relation heads",
    )
    require_shape("mask", mask, (student.shape[0], student.shape[2]))
    valid = mask.bool()
    log_student, log_teacher = _log_relations(student, valid), _log_relations(teacher, valid)
    log_ratio = log_teacher.clamp_min(SMALLEST_LOG_PROBABILITY) - log_student.clamp_min(
        SMALLEST_LOG_PROBABILITY
    )
    rows = (log_teacher.exp() * log_ratio).sum(-1).masked_fill(~valid[:, None, :], 0.0)
    return mean_over_batch(rows.sum((1, 2)), valid.sum(1) * student.shape[1])


def relations(
    features: Float[Tensor, "batch heads tokens width"], mask: TokenMask
) -> Float[Tensor, "batch heads tokens tokens"]:
    """R = softmax(XXᵀ/√r) over the valid tokens: the map that `relation_kl` compares.

    For mixtures of several layers' relations, which `attention_kl` can compare with one layer's.
    """
    require_shape("mask", mask, (features.shape[0], features.shape[2]))
    return _log_relations(features, mask.bool()).exp()
