"""Hidden states compared: distances between representations of one width.

Follow mapping and projections, which have brought both sides to that width.
"""

from typing import get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from limbeck.functional import reductions
from limbeck.support.errors import LimbeckError, unknown
from limbeck.support.settings import Pool

_FIX = "map one side to the other's width with a projection"


def mse(
    student: Float[Tensor, "*leading width"],
    teacher: Float[Tensor, "*leading width"],
    *,
    weights: reductions.ExampleWeights = None,
) -> Float[Tensor, ""]:
    """Squared error, mean over all dimensions: ALP-KD Eq. 7's MSE; soft label of a regression.

    `weights`, one for each entry of the first dimension, are the weights of the examples
    (`weighted_mean`).

    Raises:
        LimbeckError: the shapes differ.
    """
    student, teacher = reductions.comparable("mse", student, teacher, _FIX)
    if weights is None:
        return F.mse_loss(student, teacher)
    each = F.mse_loss(student, teacher, reduction="none").flatten(1).mean(1)
    return reductions.weighted_mean(each, weights)


def normalized_mse(
    student: Float[Tensor, "*leading width"], teacher: Float[Tensor, "*leading width"]
) -> Float[Tensor, ""]:
    """‖s/‖s‖ − t/‖t‖‖², summed over the width, mean over the leading dimensions.

    PKD's patience loss (ALP-KD Eq. 3, without its stray minus); RAIL-KD Eq. 2 and 3. Between 0
    and 4; equals 2·`cosine_distance`, and keeps more digits near 0. A zero vector stays zero.

    Raises:
        LimbeckError: the shapes differ.
    """
    student, teacher = reductions.comparable("normalized_mse", student, teacher, _FIX)
    difference = F.normalize(student, dim=-1) - F.normalize(teacher, dim=-1)
    return difference.square().sum(-1).mean()


def cosine_distance(
    student: Float[Tensor, "*leading width"],
    teacher: Float[Tensor, "*leading width"],
    mask: reductions.TokenMask | None = None,
) -> Float[Tensor, ""]:
    """1 − cos(s, t), mean over the leading dimensions: Internal-KD Eq. 3; DistilBERT's cosine term.

    With a mask (both sides [batch, tokens, width]) the mean is over each example's valid tokens,
    then over the batch. The cosine of a zero vector is 0, its distance 1.

    Raises:
        LimbeckError: the shapes differ, or the mask does not fit.
    """
    student, teacher = reductions.comparable("cosine_distance", student, teacher, _FIX)
    if mask is None:
        return (1.0 - F.cosine_similarity(student, teacher, dim=-1)).mean()
    reductions.require_shape("mask", mask, student.shape[:-1])
    valid = mask.bool()
    # Masked before the cosine, not after: a norm that overflows would poison the gradient.
    outside = ~valid.unsqueeze(-1)
    cosine = F.cosine_similarity(
        student.masked_fill(outside, 0.0), teacher.masked_fill(outside, 0.0), dim=-1
    )
    distance = (1.0 - cosine).masked_fill(~valid, 0.0)
    return reductions.mean_over_batch(distance.sum(1), valid.sum(1))


def hidden_mse(
    student: Float[Tensor, "batch tokens width"],
    teacher: Float[Tensor, "batch tokens width"],
    mask: reductions.TokenMask,
) -> Float[Tensor, ""]:
    """Squared error of all tokens, mean over width, each example's valid tokens, then the batch.

    CR-ILD Eq. 2 (𝓛_IR) after its W_H; TinyBERT's hidden and embedding loss, with padding left out.

    Raises:
        LimbeckError: the shapes differ, or the mask does not fit.
    """
    student, teacher = reductions.comparable("hidden_mse", student, teacher, _FIX)
    reductions.require_shape("mask", mask, student.shape[:2])
    valid = mask.bool()
    difference = student - teacher
    # The difference is ours, so filling it in place saves a copy of the hidden states.
    squared = difference.masked_fill_(~valid.unsqueeze(-1), 0.0).square().sum((1, 2))
    return reductions.mean_over_batch(squared, valid.sum(1) * student.shape[-1])


# One vector for a sequence: which token, or tokens, speak for it. Captured states are pooled
# before they are projected and compared.


def pool(
    hidden: Float[Tensor, "batch tokens width"], mask: reductions.TokenMask, how: str
) -> Float[Tensor, "batch width"]:
    """Pools hidden states over the valid tokens of each example.

    `cls`: the first valid position, on either side of padding. `mean`: the mean of the valid
    positions, RAIL-KD Eq. 1 (whose mean over all L positions counts padding too; ours does not).
    `last`: the last valid position, for decoders. An example without a valid position gives zeros.

    Raises:
        LimbeckError: `how` is unknown, or the mask does not fit.
    """
    reductions.require_shape("mask", mask, hidden.shape[:2])
    valid = mask.bool()
    if how == "mean":
        masked = hidden.masked_fill(~valid.unsqueeze(-1), 0.0)
        total = masked.sum(1, dtype=reductions.float32_or_wider(hidden.dtype))
        return total / valid.sum(1, keepdim=True).clamp(min=1)
    if how == "cls":
        # The maximum of a 0/1 row is found at its first 1.
        position = valid.int().argmax(1)
    elif how == "last":
        position = (valid * torch.arange(valid.shape[1], device=valid.device)).amax(1)
    else:
        raise LimbeckError(unknown("pooling", how, get_args(Pool)))
    index = position.view(-1, 1, 1).expand(-1, 1, hidden.shape[-1])
    chosen = reductions.at_least_float32(hidden.gather(1, index).squeeze(1))
    return chosen.masked_fill(~valid.any(1, keepdim=True), 0.0)
