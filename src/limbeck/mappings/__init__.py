"""Mappings: weights of shape (student layers, teacher layers), and how to combine the picked layers."""

from limbeck.mappings.combine import concatenation, pairs, weighted_sum
from limbeck.mappings.from_spec import build_mapping, rounding_note
from limbeck.mappings.kinds import DepthsSpec
from limbeck.mappings.mapping_spec import MAPPINGS, Depths, MappingSpec, mapping
from limbeck.mappings.maps import (
    AttentionMapping,
    FixedMapping,
    Mapping,
    RandomMapping,
    after_step,
)
from limbeck.mappings.ranges import parse_layers
from limbeck.mappings.transport_plan import TransportMapping

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
