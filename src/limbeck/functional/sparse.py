"""Softmax's sparse relatives: probabilities over the last dimension with exact zeros.

Serve the attention mapping of `alp-sparse`. Both project the scores onto the probability simplex,
in closed form after a sort; gradients flow to the scores that got a weight.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def sparsemax(scores: Float[Tensor, "*leading choices"]) -> Float[Tensor, "*leading choices"]:
    """The probabilities nearest to the scores (Martins & Astudillo 2016, Algorithm 1)."""
    # Shifted, which changes no weight: beside large scores the 1 below would be rounded away.
    scores = scores - scores.max(-1, keepdim=True).values
    ordered = scores.sort(-1, descending=True).values
    size = _places(scores)
    support = size * ordered > ordered.cumsum(-1) - 1.0
    count = support.sum(-1, keepdim=True).to(scores.dtype)
    threshold = (_over(ordered, support) - 1.0) / count
    return (scores - threshold).clamp_min(0.0)


def entmax(scores: Float[Tensor, "*leading choices"]) -> Float[Tensor, "*leading choices"]:
    """1.5-entmax (Peters et al. 2019, Algorithm 2): between softmax and sparsemax."""
    # Shifted as above.
    half = (scores - scores.max(-1, keepdim=True).values) / 2
    ordered = half.sort(-1, descending=True).values
    with torch.no_grad():
        size = _places(half)
        mean = ordered.cumsum(-1) / size
        spread = ordered.square().cumsum(-1) - size * mean.square()
        threshold = mean - ((1.0 - spread) / size).clamp_min(0.0).sqrt()
        support = threshold <= ordered
    # Once more over the support alone: the root's gradient outside it would be infinite.
    count = support.sum(-1, keepdim=True).to(half.dtype)
    mean = _over(ordered, support) / count
    spread = _over((ordered - mean).square(), support)
    threshold = mean - ((1.0 - spread) / count).clamp_min(torch.finfo(half.dtype).tiny).sqrt()
    return (half - threshold).clamp_min(0.0).square()


def _places(scores: Tensor) -> Tensor:
    return torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=scores.dtype)


def _over(values: Tensor, support: Tensor) -> Tensor:
    return values.masked_fill(~support, 0.0).sum(-1, keepdim=True)


TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {"sparsemax": sparsemax, "entmax": entmax}
