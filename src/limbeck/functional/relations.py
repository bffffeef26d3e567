"""Relations between tokens compared, when head counts or widths of the two sides differ.

Follows capture of queries, keys or values, their features split into relation heads.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from limbeck.functional import attention, reductions
from limbeck.support.errors import LimbeckError


def _log_relations(features: Tensor, valid: Tensor) -> Tensor:
    """log softmax(XXᵀ/√r) over the valid keys: [B, A, N, r] → [B, A, N, N]; ≈ −3e38 outside."""
    # Masked before the product: 0·∞ in its gradient would be NaN.
    features = reductions.at_least_float32(features).masked_fill(~valid[:, None, :, None], 0.0)
    with reductions.without_autocast(features):
        scores = (features * features.shape[-1] ** -0.5) @ features.transpose(-1, -2)
    # The least number, not −∞: a row without any valid key then stays finite.
    least = torch.finfo(scores.dtype).min
    found: Tensor = scores.masked_fill(~valid[:, None, None, :], least).log_softmax(-1)
    return found


_HEADS_FIX = "split the features of both into the same number of relation heads"


def relation_kl(
    student: Float[Tensor, "batch heads tokens student_width"],
    teacher: Float[Tensor, "batch heads tokens teacher_width"],
    mask: reductions.TokenMask,
) -> Float[Tensor, ""]:
    """KL(R_T ‖ R_S) with R = softmax(XXᵀ/√r); sums and means as in `attention_kl`.

    MiniLM's value relation; MiniLMv2's query, key and value relations. Only the number of relation
    heads must agree: r is each side's own width. Probabilities are floored at 1e-12 in the
    logarithm.

    Raises:
        LimbeckError: batch, heads or tokens differ, or the mask does not fit.
    """
    reductions.require_same_shape(
        "relation_kl (batch, heads, tokens)",
        student.shape[:-1],
        teacher.shape[:-1],
        _HEADS_FIX,
    )
    reductions.require_shape("mask", mask, (student.shape[0], student.shape[2]))
    valid = mask.bool()
    log_student, log_teacher = _log_relations(student, valid), _log_relations(teacher, valid)
    log_ratio = log_teacher.clamp_min(reductions.SMALLEST_LOG_PROBABILITY) - log_student.clamp_min(
        reductions.SMALLEST_LOG_PROBABILITY
    )
    rows = (log_teacher.exp() * log_ratio).sum(-1).masked_fill(~valid[:, None, :], 0.0)
    return reductions.mean_over_batch(rows.sum((1, 2)), valid.sum(1) * student.shape[1])


def relations(
    features: Float[Tensor, "batch heads tokens width"], mask: reductions.TokenMask
) -> Float[Tensor, "batch heads tokens tokens"]:
    """R = softmax(XXᵀ/√r) over the valid tokens: the map that `relation_kl` compares.

    For mixtures of several layers' relations, which `attention_kl` can compare with one layer's.
    """
    reductions.require_shape("mask", mask, (features.shape[0], features.shape[2]))
    return _log_relations(features, mask.bool()).exp()


def relation_scores(
    queries: Float[Tensor, "batch heads queries width"],
    keys: Float[Tensor, "batch heads keys width"],
    query_mask: attention.QueryMask,
    key_mask: attention.KeyMask | None = None,
) -> Float[Tensor, "batch heads queries keys"]:
    """QKᵀ/√r in relation heads, before any softmax; 0 where either mask closes.

    What `relation_mse` compares. Queries with keys give the attention scores of relation heads,
    of which CR-ILD (App. F.2) speaks; X with itself the scores of MiniLMv2's relations (Eqs. 3–5). r
    is the width of a relation head. A model's own position bias is no part of them: it belongs to
    the model's own heads (ours). `key_mask` defaults to `query_mask`.

    Raises:
        LimbeckError: heads or widths of queries and keys differ, a mask does not fit, or there is
            no key mask and the lengths differ.
    """
    shapes = tuple(queries.shape), tuple(keys.shape)
    if any(shapes[0][dim] != shapes[1][dim] for dim in (0, 1, 3)):
        raise LimbeckError(
            f"relation_scores: the queries have shape {shapes[0]}, the keys {shapes[1]}", _HEADS_FIX
        )
    masks = query_mask, query_mask if key_mask is None else key_mask
    attention.valid_pairs((*shapes[0][:3], shapes[1][2]), query_mask, key_mask)
    # Masked before the product: 0·∞ in its gradient would be NaN.
    rows, columns = (
        reductions.at_least_float32(side).masked_fill(~mask.bool()[:, None, :, None], 0.0)
        for side, mask in zip((queries, keys), masks, strict=True)
    )
    with reductions.without_autocast(rows):
        found: Float[Tensor, "batch heads queries keys"] = (
            rows * rows.shape[-1] ** -0.5
        ) @ columns.transpose(-1, -2)
        return found


def relation_mse(
    student_scores: Float[Tensor, "batch heads queries keys"],
    teacher_scores: Float[Tensor, "batch heads queries keys"],
    query_mask: attention.QueryMask,
    key_mask: attention.KeyMask | None = None,
    *,
    causal: bool = False,
) -> Float[Tensor, ""]:
    """Squared error of `relation_scores`; mean over valid (query, key) pairs, heads, the batch.

    CR-ILD, App. F.2: relation heads (Wang et al. 2021), compared as TinyBERT compares attention
    scores (Jiao et al. 2020, Eq. 7). Causal keeps the pairs with key ≤ query. Unlike
    `attention_mse` it takes no low score for a closed one: no model has masked these.

    Raises:
        LimbeckError: the shapes differ, a mask does not fit, or there is no key mask and the
            lengths differ.
    """
    scores = student_scores, teacher_scores
    student, teacher, _, outside = attention.paired_maps(
        "relation_mse", scores, query_mask, key_mask, causal=causal, fix=_HEADS_FIX
    )
    return attention.error_of_pairs(student, teacher, outside)
