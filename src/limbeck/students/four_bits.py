"""Embedding tables that are trained as they ship, rounded to 4 bits in each pass. Part of `limbeck.students`."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCK = 32
"""Values that share a scale and a zero point, as in the files of `limbeck export`."""
_STEPS = 15
_HALF = -1 << 13
"""The bits of a float that half precision has as well."""


def rounded(rows: Tensor) -> Tensor:
    """Values (…, d) on the 16 steps of their block, from its least to its greatest value, 0 always among them.

    ONNX Runtime's rule for tables of 4 bits, so that rounded values stay as they are in its file, whose scales are of
    half precision. Gradients pass as if nothing was rounded (the straight-through estimator of Bengio et al. 2013,
    arXiv:1308.3432).
    """
    width = rows.shape[-1]
    blocks = F.pad(rows.detach().float(), (0, -width % BLOCK)).unflatten(-1, (-1, BLOCK))
    low = blocks.amin(-1, keepdim=True).clamp(max=0)
    high = blocks.amax(-1, keepdim=True).clamp(min=0)
    scale = ((high - low) / _STEPS).clamp(min=torch.finfo(torch.float).tiny)
    # Rounded down: with a larger scale a block could miss its last step, and would be rounded to 15 steps once more.
    scale = (scale.view(torch.int32) & _HALF).view(torch.float)
    zero = (-low / scale).round()
    steps = (blocks / scale + zero).round().clamp(0, _STEPS)
    found: Tensor = ((steps - zero) * scale).flatten(-2)[..., :width].to(rows.dtype)
    return found + (rows - rows.detach())


def tables_of(model: nn.Module) -> list[nn.Embedding]:
    """The embedding tables of a model, such as those for tokens, positions and segments."""
    return [one for one in model.modules() if isinstance(one, nn.Embedding)]


def in_four_bits(model: nn.Module) -> bool:
    """Whether all tables of a model are on the steps of 4 bits, as `trained_in_four_bits` leaves them."""
    weights = [one.weight for one in tables_of(model)]
    return bool(weights) and all(torch.equal(weight, rounded(weight)) for weight in weights)


@contextmanager
def trained_in_four_bits(model: nn.Module) -> Iterator[None]:
    """Within it the model looks up rounded embeddings and learns the values behind them.

    At its end the model keeps the rounded ones; after an error, the values.
    """
    tables = tables_of(model)
    hooks = [one.register_forward_hook(lambda _, __, rows: rounded(rows)) for one in tables]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    with torch.no_grad():
        for one in tables:
            one.weight.copy_(rounded(one.weight))
