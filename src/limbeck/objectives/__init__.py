"""Objectives: the terms of a loss, each asking for what it needs and returning one named scalar."""

from limbeck.objectives.base import Objective
from limbeck.objectives.curriculum import CurriculumSpec
from limbeck.objectives.group import Objectives
from limbeck.objectives.layer_match import LayerMatch
from limbeck.objectives.matched import MappedTerm
from limbeck.objectives.per_teacher import TeamObjectives
from limbeck.objectives.predictions import HardLabel, SoftLabel
from limbeck.objectives.shape import ModelShape, Shape
from limbeck.objectives.spec import (
    SPECS,
    ConsistencySpec,
    ErrorWeightedSpec,
    HardSpec,
    LayerSpec,
    MappedSpec,
    SoftSpec,
    TermSpec,
)

__all__ = [
    "SPECS",
    "ConsistencySpec",
    "CurriculumSpec",
    "ErrorWeightedSpec",
    "HardLabel",
    "HardSpec",
    "LayerMatch",
    "LayerSpec",
    "MappedSpec",
    "MappedTerm",
    "ModelShape",
    "Objective",
    "Objectives",
    "Shape",
    "SoftLabel",
    "SoftSpec",
    "TeamObjectives",
    "TermSpec",
]
