"""Which layers: weights of shape (student layers, teacher layers), and how to combine the picked.

On the way of a training step: after `capture`, beside `projections`, before `objectives`.
"""

from limbeck.mapping.build import build_mapping, rounding_note
from limbeck.mapping.combine import concatenation, pairs, weighted_sum
from limbeck.mapping.maps import AttentionMapping, FixedMapping, Mapping, RandomMapping
from limbeck.mapping.spec import MappingSpec

__all__ = [
    "AttentionMapping",
    "FixedMapping",
    "Mapping",
    "MappingSpec",
    "RandomMapping",
    "build_mapping",
    "concatenation",
    "pairs",
    "rounding_note",
    "weighted_sum",
]
