"""Relations between the parts of one representation, compared: pairs, and angles at a center.

Contextual knowledge distillation (Park et al., EMNLP 2021). The parts are an example's tokens (word
relation) or one token's layers (layer-transforming relation). Only relations inside a side are
compared, so widths may differ.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from limbeck.functional import reductions

MeanOver = Literal["valid", "all"]

# A squared distance below this share of the squared norms is rounding.
_NO_DIRECTION = 1e-6

_FIX = "both sides need the same number of parts: map as many teacher layers as student layers"


def word_relation_kl(
    student: Float[Tensor, "batch tokens student_width"],
    teacher: Float[Tensor, "batch tokens teacher_width"],
    mask: reductions.TokenMask,
    *,
    mean_over: MeanOver = "valid",
) -> Float[Tensor, ""]:
    """KL(P_T ‖ P_S), P a token's softmax over its cosines to the other tokens.

    A token is not compared with itself nor with padding. Mean over each example's tokens that have
    another, then the batch; `all`, as the release: the sum over the number of all pairs of tokens
    of an example, a token with itself among them, in the entire batch.

    Raises:
        LimbeckError: batch or tokens differ, or the mask does not fit.
    """
    valid = _check("word_relation_kl", student, teacher, mask)
    rows = _pair_rows(_clean(student, valid), _clean(teacher, valid), valid)
    if mean_over == "all":
        return _share(rows.sum(), valid.sum(1).square().sum())
    return reductions.mean_over_batch(
        rows.sum(1), (valid & (valid.sum(1, keepdim=True) > 1)).sum(1)
    )


def word_relation_mse(
    student: Float[Tensor, "batch tokens student_width"],
    teacher: Float[Tensor, "batch tokens teacher_width"],
    mask: reductions.TokenMask,
    *,
    window: int = 21,
    mean_over: MeanOver = "valid",
) -> Float[Tensor, ""]:
    """Squared error of the angles between two tokens' differences to a centre token.

    The angle at i of j and k is cos(h_j − h_i, h_k − h_i), for j ≠ k within `window` tokens around
    i. Mean over each example's angles, then the batch; `all`, as the release: over all pairs of
    places in all windows of the batch, where padding counts around a real token, and the first and
    last position replace positions beyond them.

    Raises:
        LimbeckError: batch or tokens differ, or the mask does not fit.
    """
    valid = _check("word_relation_mse", student, teacher, mask)
    if mean_over == "all":
        return _windows_over_all(student, teacher, valid, window)
    totals, counts = _angle_errors(_clean(student, valid), _clean(teacher, valid), valid, window)
    return reductions.mean_over_batch(totals, counts)


def layer_relation_kl(
    student: Float[Tensor, "batch tokens layers student_width"],
    teacher: Float[Tensor, "batch tokens layers teacher_width"],
    mask: reductions.TokenMask,
    *,
    mean_over: MeanOver = "valid",
) -> Float[Tensor, ""]:
    """`word_relation_kl` among the layers of one token, by the token rule.

    `all`, as the release: over all pairs of layers, one with itself among them, of all tokens.

    Raises:
        LimbeckError: batch, tokens or layers differ, or the mask does not fit.
    """
    valid = _check("layer_relation_kl", student, teacher, mask)
    student, teacher, everywhere = _token_by_token(student, teacher, valid)
    rows = _pair_rows(student, teacher, everywhere)
    if mean_over == "all":
        return _share(_of_tokens(rows.sum(1), valid).sum(), valid.sum() * rows.shape[1] ** 2)
    return _token_rule(rows.mean(1), valid)


def layer_relation_mse(
    student: Float[Tensor, "batch tokens layers student_width"],
    teacher: Float[Tensor, "batch tokens layers teacher_width"],
    mask: reductions.TokenMask,
    *,
    mean_over: MeanOver = "valid",
) -> Float[Tensor, ""]:
    """`word_relation_mse` among all layers of one token, by the token rule.

    `all`, as the release: over all triples of layers, also of less than three, of all tokens.

    Raises:
        LimbeckError: batch, tokens or layers differ, or the mask does not fit.
    """
    valid = _check("layer_relation_mse", student, teacher, mask)
    student, teacher, everywhere = _token_by_token(student, teacher, valid)
    totals, counts = _angle_errors(student, teacher, everywhere, 2 * student.shape[1] - 1)
    if mean_over == "all":
        return _share(_of_tokens(totals, valid).sum(), valid.sum() * student.shape[1] ** 3)
    return _token_rule(totals / counts.clamp(min=1), valid)


def _check(name: str, student: Tensor, teacher: Tensor, mask: Tensor) -> Tensor:
    reductions.require_same_shape(name, student.shape[:-1], teacher.shape[:-1], _FIX)
    reductions.require_shape("mask", mask, student.shape[:2])
    return mask.bool()


def _clean(hidden: Tensor, valid: Tensor) -> Tensor:
    """In float32 and zero at padding, whatever its values, so that no gradient meets a NaN."""
    outside = ~valid.view(*valid.shape, *[1] * (hidden.dim() - 2))
    return reductions.at_least_float32(hidden).masked_fill(outside, 0.0)


def _token_by_token(
    student: Tensor, teacher: Tensor, valid: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Every token (B·N, layers, d) as an example whose parts, its layers, are all valid."""
    student, teacher = _clean(student, valid).flatten(0, 1), _clean(teacher, valid).flatten(0, 1)
    return student, teacher, torch.ones(student.shape[:2], dtype=torch.bool, device=student.device)


def _token_rule(per_token: Tensor, valid: Tensor) -> Tensor:
    """Values of all tokens (B·N) by the token rule."""
    return reductions.mean_over_batch(_of_tokens(per_token, valid).sum(1), valid.sum(1))


def _of_tokens(per_token: Tensor, valid: Tensor) -> Tensor:
    """(B·N) as (B, N), 0 at padding."""
    return per_token.view(valid.shape).masked_fill(~valid, 0.0)


def _share(total: Tensor, count: Tensor) -> Tensor:
    """One mean over a batch; 0 of nothing."""
    return total / count.clamp(min=1)


def _windows_over_all(student: Tensor, teacher: Tensor, valid: Tensor, window: int) -> Tensor:
    """Squared angle differences over all places of all real tokens' windows."""
    parts, reach = valid.shape[1], window // 2
    around = torch.arange(-reach, reach + 1, device=valid.device)
    place = torch.arange(parts, device=valid.device)[:, None] + around
    place = place.clamp(0, parts - 1)
    sides = (reductions.at_least_float32(student), reductions.at_least_float32(teacher))
    difference = _angles(sides[0], place) - _angles(sides[1], place)
    squared = difference.square().sum((2, 3)).masked_fill(~valid, 0.0)
    return _share(squared.sum(), valid.sum() * len(around) ** 2)


def _pair_rows(
    student: Float[Tensor, "batch parts student_width"],
    teacher: Float[Tensor, "batch parts teacher_width"],
    valid: Bool[Tensor, "batch parts"],
) -> Float[Tensor, "batch parts"]:
    """KL of each part's softmax over its cosines to the others; 0 where there is nothing."""
    parts = student.shape[1]
    itself = torch.eye(parts, dtype=torch.bool, device=student.device)
    closed = ~valid[:, None, :] | itself
    log_student, log_teacher = _log_cosines(student, closed), _log_cosines(teacher, closed)
    log_ratio = log_teacher.clamp_min(reductions.SMALLEST_LOG_PROBABILITY) - log_student.clamp_min(
        reductions.SMALLEST_LOG_PROBABILITY
    )
    rows = (log_teacher.exp() * log_ratio).masked_fill(closed, 0.0).sum(-1)
    return rows.masked_fill(~valid, 0.0)


def _log_cosines(hidden: Tensor, closed: Tensor) -> Tensor:
    unit = F.normalize(hidden, dim=-1)
    with reductions.without_autocast(unit):
        cosines = unit @ unit.transpose(-1, -2)
    # The least number, not −∞: a row without any open part then stays finite.
    return cosines.masked_fill(closed, torch.finfo(cosines.dtype).min).log_softmax(-1)


def _angle_errors(
    student: Float[Tensor, "batch parts student_width"],
    teacher: Float[Tensor, "batch parts teacher_width"],
    valid: Bool[Tensor, "batch parts"],
    window: int,
) -> tuple[Tensor, Tensor]:
    """Sum of squared angle differences and number of angles, of each example, (B) each."""
    parts = valid.shape[1]
    reach = min(window // 2, parts - 1)
    around = torch.arange(-reach, reach + 1, device=valid.device)
    place = torch.arange(parts, device=valid.device)[:, None] + around
    inside = (place >= 0) & (place < parts) & (around != 0)
    place = place.clamp(0, parts - 1)
    member = valid[:, place] & inside & valid[:, :, None]
    difference = _angles(student, place) - _angles(teacher, place)
    other = ~torch.eye(len(around), dtype=torch.bool, device=valid.device)
    pairs = member[:, :, :, None] & member[:, :, None, :] & other
    squared = difference.square().masked_fill(~pairs, 0.0)
    return squared.sum((1, 2, 3)), pairs.sum((1, 2, 3))


def _angles(hidden: Tensor, place: Tensor) -> Tensor:
    """[B, N, W, W]: cosines between the differences of each centre's window members to it.

    ⟨h_j − h_i, h_k − h_i⟩ = G_jk − G_ij − G_ik + G_ii: of N² products instead of N·W² differences.
    """
    # Differences stay as they are, and the products lose fewer digits to a common part.
    hidden = hidden - hidden.mean(1, keepdim=True)
    with reductions.without_autocast(hidden):
        gram = hidden @ hidden.transpose(-1, -2)
    centre = torch.arange(len(place), device=place.device)[:, None]
    own, to_centre = gram.diagonal(dim1=1, dim2=2), gram[:, centre, place]
    products = gram[:, place[:, :, None], place[:, None, :]] + own[:, :, None, None]
    products = products - to_centre[:, :, :, None] - to_centre[:, :, None, :]
    squared = products.diagonal(dim1=2, dim2=3)
    # Two equal tokens have no direction to each other, and its gradient would be endless.
    nowhere = squared <= _NO_DIRECTION * (own[:, place] + own[:, :, None])
    inverse = squared.masked_fill(nowhere, 1.0).rsqrt().masked_fill(nowhere, 0.0)
    return products * inverse[:, :, :, None] * inverse[:, :, None, :]
