"""One vector for a sequence: which token, or tokens, speak for it.

Captured states are pooled before they are projected and compared.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from limbeck.functional.checks import require_shape
from limbeck.functional.reductions import TokenMask, at_least_float32, float32_or_wider
from limbeck.support.errors import LimbeckError, unknown

POOLINGS = ("cls", "mean", "last")


def pool(
    hidden: Float[Tensor, "batch tokens width"], mask: TokenMask, how: str
) -> Float[Tensor, "batch width"]:
    """Pools hidden states over the valid tokens of each example.

    `cls`: the first valid position, wherever padding stands. `mean`: the mean of the valid
    positions, RAIL-KD Eq. 1 (whose mean over all L positions counts padding too; ours does not).
    `last`: the last valid position, for decoders. An example without a valid position gives zeros.

    Raises:
        LimbeckError: `how` is none of the three, or the mask does not fit.
    """
    if how not in POOLINGS:
        raise LimbeckError(unknown("pooling", how, POOLINGS))
    require_shape("mask", mask, hidden.shape[:2])
    valid = mask.bool()
    if how == "mean":
        masked = hidden.masked_fill(~valid.unsqueeze(-1), 0.0)
        total = masked.sum(1, dtype=float32_or_wider(hidden.dtype))
        return total / valid.sum(1, keepdim=True).clamp(min=1)
    if how == "cls":
        # The maximum of a 0/1 row is found at its first 1.
        position = valid.int().argmax(1)
    else:
        position = (valid * torch.arange(valid.shape[1], device=valid.device)).amax(1)
    index = position.view(-1, 1, 1).expand(-1, 1, hidden.shape[-1])
    chosen = at_least_float32(hidden.gather(1, index).squeeze(1))
    return chosen.masked_fill(~valid.any(1, keepdim=True), 0.0)
