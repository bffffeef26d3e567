"""From weights to targets: how a student layer's teacher layers become what its student is compared with.

Part of `limbeck.mappings`. Two ways give one target a student layer (`sum`, `concat`); the third (`costs`)
keeps the pairs apart.
"""

from __future__ import annotations

import torch
from torch import Tensor

Constant = tuple[dict[int, float], ...]


def weighted_sum(weights: Constant | Tensor, teacher: dict[int, Tensor]) -> list[Tensor]:
    """Per student layer Σ_k w_jk · h_k. A single layer of weight 1 is returned itself, uncopied."""
    if isinstance(weights, Tensor):
        layers = torch.stack([teacher[k] for k in sorted(teacher)], dim=1)
        mixed = torch.einsum("bst,bt...->sb...", weights, layers.float())
        return list(mixed.unbind(0))
    return [_row_sum(row, teacher) for row in weights]


def _row_sum(row: dict[int, float], teacher: dict[int, Tensor]) -> Tensor:
    if len(row) == 1:
        ((layer, weight),) = row.items()
        return teacher[layer] if weight == 1.0 else teacher[layer].float() * weight
    return torch.stack([teacher[k].float() * w for k, w in row.items()]).sum(0)


def concatenation(weights: Constant, teacher: dict[int, Tensor]) -> list[Tensor]:
    """Per student layer its teacher layers side by side on the feature axis, in ascending order (CKD)."""
    return [torch.cat([teacher[k] for k in sorted(row)], dim=-1) for row in weights]


def pairs(weights: Constant) -> list[tuple[int, int, float]]:
    """(student layer number, teacher layer, weight) of each pair, for a weighted sum of comparisons."""
    return [(j, k, w) for j, row in enumerate(weights) for k, w in row.items()]
