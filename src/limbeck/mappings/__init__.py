"""Mappings: weights of shape (student layers, teacher layers), and how to combine the picked layers."""

from limbeck.mappings import kinds  # noqa: F401  it registers the shipped kinds
from limbeck.mappings.maps import FixedMapping, Mapping, TransportMapping, after_step
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
    "Depths",
    "FixedMapping",
    "Mapping",
    "MappingSpec",
    "TransportMapping",
    "after_step",
    "build_mapping",
    "mapping",
    "parse_layers",
    "rounding_note",
]
