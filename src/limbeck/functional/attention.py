"""Attention maps compared, head by head: as probabilities, or as scores before the softmax.

Follow mapping, which has chosen the pair of layers. Attention maps need the same number of heads on both sides.
Relations between tokens compare sides that differ: queries, keys or values, their features split into relation heads.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from limbeck.functional import reductions
from limbeck.support.errors import LimbeckError

QueryMask = Bool[Tensor, "batch queries"] | Integer[Tensor, "batch queries"]
KeyMask = Bool[Tensor, "batch keys"] | Integer[Tensor, "batch keys"]

# A score this low was put there by a model's own mask: Hugging Face adds the least number of the
# type (float16's is −65504) or −∞. No learned score comes near.
MASKED_SCORE = -1e4

_FIX = "heads must match: choose layers of equal head count, or compare relations (relation_kl)"


def valid_pairs(
    shape: Sequence[int], query_mask: Tensor, key_mask: Tensor | None, *, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """The mask of query rows [B, Q] and of (query, key) pairs [B, 1, Q, K], both boolean.

    For maps of a shape [B, H, Q, K]; causal keeps the keys up to a query.

    Raises:
        LimbeckError: a mask does not fit, or the keys differ from the queries and have no mask.
    """
    batch, _, queries, keys = shape
    if key_mask is None:
        if queries != keys:
            raise LimbeckError(
                f"attention of {queries} queries over {keys} keys has no key mask",
                "give key_mask: it defaults to query_mask only in self-attention",
            )
        key_mask = query_mask
    reductions.require_shape("query_mask", query_mask, (batch, queries))
    reductions.require_shape("key_mask", key_mask, (batch, keys))
    valid_queries = query_mask.bool()
    inside = valid_queries[:, None, :, None] & key_mask.bool()[:, None, None, :]
    if causal:
        inside = inside & torch.ones(queries, keys, dtype=torch.bool, device=inside.device).tril()
    return valid_queries, inside


class PairedMaps(NamedTuple):
    """Maps of both sides, at least float32, and what of them counts.

    Attributes:
        student, teacher: [B, H, Q, K].
        rows: how many valid rows each example has over all heads, [B].
        outside: the (query, key) pairs that do not count, [B, 1, Q, K].
    """

    student: Tensor
    teacher: Tensor
    rows: Tensor
    outside: Tensor


def paired_maps(
    name: str,
    maps: tuple[Tensor, Tensor],
    query_mask: Tensor,
    key_mask: Tensor | None,
    *,
    causal: bool = False,
    fix: str = _FIX,
) -> PairedMaps:
    """The student's and the teacher's maps [B, H, Q, K] for a comparison of that name.

    Raises:
        LimbeckError: the shapes differ, a mask does not fit, or cross-attention has no key mask.
    """
    student, teacher = maps
    student, teacher = reductions.comparable(name, student, teacher, fix)
    valid_queries, inside = valid_pairs(student.shape, query_mask, key_mask, causal=causal)
    rows = valid_queries.sum(1) * student.shape[1]
    return PairedMaps(student, teacher, rows, ~inside)


def error_of_pairs(student: Tensor, teacher: Tensor, outside: Tensor) -> Tensor:
    """Squared error of scores [B, H, Q, K]: mean over the pairs not outside, heads, the batch."""
    outside = outside.expand_as(student)
    # −∞ − (−∞) is NaN, and so is its square's gradient: filled before squaring.
    squared = (student - teacher).masked_fill_(outside, 0.0).square().sum((2, 3))
    return reductions.mean_over_batch(squared, (~outside).sum((2, 3)))


def attention_kl(
    student_probs: Float[Tensor, "batch heads queries keys"],
    teacher_probs: Float[Tensor, "batch heads queries keys"],
    query_mask: QueryMask,
    key_mask: KeyMask | None = None,
) -> Float[Tensor, ""]:
    """KL(A_T ‖ A_S) summed over keys; mean over heads and valid query rows, then over the batch.

    Internal-KD Eq. 2; CR-ILD Eq. 1 (𝓛_MHA, and R_MHA with the mixed clean maps as student);
    MiniLM's attention transfer. `key_mask` defaults to `query_mask`; cross-attention needs both.
    Probabilities are floored at 1e-12 before the logarithm. Gradients flow to both sides.

    Raises:
        LimbeckError: the shapes differ, a mask does not fit, or cross-attention has no key mask.
    """
    maps = paired_maps("attention_kl", (student_probs, teacher_probs), query_mask, key_mask)
    # Outside, teacher 0 and student 1 give 0·(log ε − log 1): no value, no gradient, never NaN.
    student = maps.student.masked_fill(maps.outside, 1.0)
    teacher = maps.teacher.masked_fill(maps.outside, 0.0)
    log_ratio = (
        teacher.clamp_min(reductions.SMALLEST_PROBABILITY).log()
        - student.clamp_min(reductions.SMALLEST_PROBABILITY).log()
    )
    divergence = (teacher * log_ratio).sum((1, 2, 3))
    return reductions.mean_over_batch(divergence, maps.rows)


def attention_cross_entropy(
    student_scores: Float[Tensor, "batch heads queries keys"],
    teacher_scores: Float[Tensor, "batch heads queries keys"],
    query_mask: QueryMask,
    key_mask: KeyMask | None = None,
    *,
    causal: bool = False,
) -> Float[Tensor, ""]:
    """−Σ_k A_T log A_S, A the softmax of the scaled scores over valid keys; means as `attention_kl`.

    CR-ILD's release. `attention_kl` plus the teacher maps' entropy: the same gradient for the
    student. It makes the maps itself, so that they may run over other keys than the model's own;
    causal keeps the keys up to a query.

    Raises:
        LimbeckError: the shapes differ, a mask does not fit, or cross-attention has no key mask.
    """
    scores = student_scores, teacher_scores
    student, teacher, rows, outside = paired_maps(
        "attention_cross_entropy", scores, query_mask, key_mask, causal=causal
    )
    # The least number, not −∞: a row without any valid key then stays finite.
    lowest = torch.finfo(student.dtype).min
    log_student = student.masked_fill(outside, lowest).log_softmax(-1)
    maps = teacher.masked_fill(outside, lowest).softmax(-1)
    crossed = -(maps * log_student).masked_fill(outside, 0.0).sum((1, 2, 3))
    return reductions.mean_over_batch(crossed, rows)


def attention_mse(
    student_scores: Float[Tensor, "batch heads queries keys"],
    teacher_scores: Float[Tensor, "batch heads queries keys"],
    query_mask: QueryMask,
    key_mask: KeyMask | None = None,
    *,
    causal: bool = False,
) -> Float[Tensor, ""]:
    """Squared error of the scaled scores; mean over valid (query, key) pairs, heads, the batch.

    TinyBERT's attention loss; its release counts the masked pairs as zeros, this does not. Causal
    keeps the pairs with key ≤ query, which is the model's own mask when both index one sequence. A
    pair that either model's own mask closes (score ≤ −1e4 or −∞, as in sliding windows) is left
    out too (ours). A NaN at a valid pair stays NaN, so that trouble shows.

    Raises:
        LimbeckError: the shapes differ, a mask does not fit, or cross-attention has no key mask.
    """
    scores = student_scores, teacher_scores
    student, teacher, _, outside = paired_maps(
        "attention_mse", scores, query_mask, key_mask, causal=causal
    )
    # Not `> MASKED_SCORE`, which would be false for NaN and hide it.
    outside = (student <= MASKED_SCORE) | (teacher <= MASKED_SCORE) | outside
    return error_of_pairs(student, teacher, outside)


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
        "relation_kl (batch, heads, tokens)", student.shape[:-1], teacher.shape[:-1], _HEADS_FIX
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
    query_mask: QueryMask,
    key_mask: KeyMask | None = None,
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
    valid_pairs((*shapes[0][:3], shapes[1][2]), query_mask, key_mask)
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
    query_mask: QueryMask,
    key_mask: KeyMask | None = None,
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
    student, teacher, _, outside = paired_maps(
        "relation_mse", scores, query_mask, key_mask, causal=causal, fix=_HEADS_FIX
    )
    return error_of_pairs(student, teacher, outside)
