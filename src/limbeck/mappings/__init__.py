"""Mappings: weights of shape (student layers, teacher layers), and how to combine the picked layers."""

from limbeck.mappings.kinds import DepthsSpec
from limbeck.mappings.maps import (
    AttentionMapping,
    FixedMapping,
    Mapping,
    RandomMapping,
    TransportMapping,
    after_step,
    concatenation,
    pairs,
    weighted_sum,
)
from limbeck.mappings.spec import (
    MAPPINGS,
    Depths,
    MappingSpec,
    build_mapping,
    mapping,
    parse_layers,
    rounding_note,
)

__all__ = [
    "MAPPINGS",
    "AttentionMapping",
    "Depths",
    "DepthsSpec",
    "FixedMapping",
    "Mapping",
    "MappingSpec",
    "RandomMapping",
    "TransportMapping",
    "after_step",
    "build_mapping",
    "concatenation",
    "mapping",
    "pairs",
    "parse_layers",
    "rounding_note",
    "weighted_sum",
]
