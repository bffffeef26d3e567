"""The student told apart: nearer to its own teacher vector than to those of other examples.

Follows pooling and projection; the negatives come from a memory bank.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from limbeck.functional.reductions import (
    at_least_float32,
    require_positive,
    require_same_shape,
    require_shape,
)


def info_nce(
    student: Float[Tensor, "batch width"],
    positive: Float[Tensor, "batch width"],
    negatives: Float[Tensor, "batch negatives width"],
    mask: Bool[Tensor, "batch negatives"] | Integer[Tensor, "batch negatives"] | None = None,
    *,
    temperature: float | int,
) -> Float[Tensor, ""]:
    """−log softmax of the positive among positive and negatives, by cosine/τ; mean over the batch.

    CoDIR's objective. 0 without negatives; log(1 + K) when all K negatives equal the positive. The
    mask is true where there is a negative, so that each example may have as many as it has.

    Raises:
        LimbeckError: shapes do not fit, or the temperature is not above 0.
    """
    require_positive("temperature", temperature)
    require_same_shape("info_nce", student.shape, positive.shape, "map both sides to one width")
    require_same_shape(
        "info_nce (batch and width of the negatives)",
        student.shape,
        (negatives.shape[0], negatives.shape[-1]),
        "give K negatives of the student's width for each example: [batch, K, width]",
    )
    absent = None
    if mask is not None:
        require_shape(
            "mask", mask, negatives.shape[:2], "give one of that shape, true where a negative is"
        )
        absent = ~mask.bool()
        negatives = negatives.masked_fill(absent.unsqueeze(-1), 0.0)
    candidates = torch.cat([positive.unsqueeze(1), negatives], 1)
    cosine = F.cosine_similarity(
        at_least_float32(student).unsqueeze(1), at_least_float32(candidates), dim=-1
    )
    if absent is not None:
        cosine = cosine.masked_fill(F.pad(absent, (1, 0)), -torch.inf)
    first = torch.zeros(student.shape[0], dtype=torch.long, device=student.device)
    return F.cross_entropy(cosine / temperature, first)


def moved_unit(
    old: Float[Tensor, "batch width"],
    new: Float[Tensor, "batch width"],
    known: Bool[Tensor, " batch"],
    *,
    momentum: float | int,
) -> Float[Tensor, "batch width"]:
    """m·old + (1 − m)·new/‖new‖ of length 1; new/‖new‖ itself where no old one is known.

    How a memory of CoDIR's teacher vectors follows them.
    """
    unit = F.normalize(new, dim=-1)
    moved = momentum * old + (1 - momentum) * unit
    return F.normalize(torch.where(known.unsqueeze(-1), moved, unit), dim=-1)
