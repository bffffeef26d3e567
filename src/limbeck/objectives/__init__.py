"""Objectives: the terms of a loss. Each requests the activations that it needs and returns one named scalar.

One file per family: the settings, the term, and its traits. Importing a term here registers it.
"""

from limbeck.objectives import consistency, contrastive, embedding_terms, relations  # noqa: F401
from limbeck.objectives.base import OBJECTIVES, ModelShape, Objective, Shape, TermSettings
from limbeck.objectives.curriculum import CurriculumSpec
from limbeck.objectives.example_weights import (
    EXAMPLE_WEIGHTINGS,
    ExampleWeighting,
    WeightingSettings,
    WeightingSpec,
)
from limbeck.objectives.group import Loss, Objectives
from limbeck.objectives.layer_match import LayerSpec
from limbeck.objectives.mapped import MappedSpec, MappedTerm, comparison
from limbeck.objectives.per_teacher import TeamObjectives
from limbeck.objectives.predictions import HardSpec, SoftSpec
from limbeck.objectives.registration import RECORDED, TermSpec, objective

__all__ = [
    "EXAMPLE_WEIGHTINGS",
    "OBJECTIVES",
    "RECORDED",
    "CurriculumSpec",
    "ExampleWeighting",
    "HardSpec",
    "LayerSpec",
    "Loss",
    "MappedSpec",
    "MappedTerm",
    "ModelShape",
    "Objective",
    "Objectives",
    "Shape",
    "SoftSpec",
    "TeamObjectives",
    "TermSettings",
    "TermSpec",
    "WeightingSettings",
    "WeightingSpec",
    "comparison",
    "objective",
]
