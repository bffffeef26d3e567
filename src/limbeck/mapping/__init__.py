"""Which layers: weights of shape (student layers, teacher layers), and how to combine the picked.

On the way of a training step: after `capture`, beside `projections`, before `objectives`.
"""

from limbeck.mapping.combine import concatenation, pairs, weighted_sum
from limbeck.mapping.from_spec import build_mapping, rounding_note
from limbeck.mapping.mapping_spec import MappingSpec
from limbeck.mapping.maps import AttentionMapping, FixedMapping, Mapping, RandomMapping
from limbeck.mapping.ranges import parse_layers
from limbeck.mapping.transport_plan import TransportMapping, update_masses

__all__ = [
    "AttentionMapping",
    "FixedMapping",
    "Mapping",
    "MappingSpec",
    "RandomMapping",
    "TransportMapping",
    "build_mapping",
    "concatenation",
    "pairs",
    "parse_layers",
    "rounding_note",
    "update_masses",
    "weighted_sum",
]
