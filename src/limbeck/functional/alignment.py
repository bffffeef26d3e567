"""Tokens of two tokenizers brought together by the characters that both cover.

Student and teacher read the same text in other pieces. A token's span is (segment, start, end): characters of the
first or second text (segments 0 and 1), or the one place of a special token, whose segment is its role.
"""

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from limbeck.functional import reductions

_NONE = -1


def character_overlap(
    student_spans: Integer[Tensor, "batch student_longest 3"],
    teacher_spans: Integer[Tensor, "batch teacher_longest 3"],
    student_mask: Bool[Tensor, "batch student_tokens"],
    teacher_mask: Bool[Tensor, "batch teacher_tokens"],
) -> Float[Tensor, "batch student_tokens teacher_tokens"]:
    """How many characters each student token [B, N] shares with each teacher token [B, M].

    Tokens with the very same characters meet one to one, in their order: bytes of one character, spans without any.
    Where both sides have the same tokens the result is the identity.

    Args:
        student_spans: spans of the student's valid tokens of each example, in their order.
        teacher_spans: the same for the teacher.
        student_mask: which positions of the student's batch are valid.
        teacher_mask: which of the teacher's are.
    """
    student, teacher = _laid(student_spans, student_mask), _laid(teacher_spans, teacher_mask)
    ours, theirs = student[:, :, None], teacher[:, None]
    alike = (ours == theirs).all(-1) & (ours[..., 0] != _NONE)
    shared = torch.minimum(ours[..., 2], theirs[..., 2]) - torch.maximum(
        ours[..., 1], theirs[..., 1]
    )
    shared = shared.clamp_min(0) * (ours[..., 0] == theirs[..., 0])
    met = alike.any(2, keepdim=True) | alike.any(1, keepdim=True)
    return torch.where(met, alike, shared).float()


def _laid(spans: Tensor, mask: Tensor) -> Tensor:
    """Spans at the places of their tokens (B, N, 4), −1 elsewhere; last, how many tokens before have the same."""
    place = (mask.long().cumsum(1) - 1).clamp(0, spans.shape[1] - 1)
    found = spans.gather(1, place[..., None].expand(-1, -1, 3)).masked_fill(~mask[..., None], _NONE)
    same = (found[:, :, None] == found[:, None]).all(-1)
    return torch.cat([found, same.tril(-1).sum(-1, keepdim=True)], -1)


def aligned_states(
    overlap: Float[Tensor, "batch student_tokens teacher_tokens"],
    states: Float[Tensor, "batch *heads teacher_tokens width"],
) -> Float[Tensor, "batch *heads student_tokens width"]:
    """Σ_j A_ij h_j, A_ij the share of student token i's shared characters that teacher token j covers.

    A student token that shares none gets zeros.
    """
    shares, covered = overlap / overlap.sum(2, keepdim=True).clamp_min(1), overlap.any(1)
    if states.dim() == 4:
        shares, covered = shares[:, None], covered[:, None]
    # 0·∞ would be NaN.
    states = reductions.at_least_float32(states).masked_fill(~covered[..., None], 0.0)
    with reductions.without_autocast(states):
        return shares.to(states.dtype) @ states


def aligned_scores(
    overlap: Float[Tensor, "batch student_tokens teacher_tokens"],
    scores: Float[Tensor, "batch heads teacher_tokens teacher_tokens"],
) -> Float[Tensor, "batch heads student_tokens student_tokens"]:
    """A S Aᵀ: attention scores before the softmax, as aligned queries and keys would give them."""
    rows = aligned_states(overlap, scores)
    return aligned_states(overlap, rows.transpose(2, 3)).transpose(2, 3)


def aligned_attention(
    overlap: Float[Tensor, "batch student_tokens teacher_tokens"],
    probabilities: Float[Tensor, "batch heads teacher_tokens teacher_tokens"],
) -> Float[Tensor, "batch heads student_tokens student_tokens"]:
    """A P Bᵀ, B_ij the share of teacher token j's shared characters that student token i covers.

    Rows keep their sum: the mass of teacher tokens that share nothing is spread over the others.
    """
    maps = reductions.at_least_float32(probabilities)
    kept = maps.masked_fill(~overlap.any(1)[:, None, None], 0.0)
    total = kept.sum(-1, keepdim=True).clamp_min(reductions.SMALLEST_PROBABILITY)
    kept = kept * (maps.sum(-1, keepdim=True) / total)
    given = overlap / overlap.sum(1, keepdim=True).clamp_min(1)
    with reductions.without_autocast(kept):
        columns = kept @ given[:, None].transpose(2, 3).to(kept.dtype)
    return aligned_states(overlap, columns)
