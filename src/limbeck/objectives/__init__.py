"""Objectives: the terms of a loss, each asking for what it needs and returning one named scalar.

One file a family: what a recipe may say of it, the term, and its traits.
"""

from limbeck.objectives.attention_maps import AttentionSpec, RelationSpec
from limbeck.objectives.base import OBJECTIVES, Objective, TermSettings
from limbeck.objectives.candidate_terms import (
    ListwiseSpec,
    MarginSpec,
    PairContrastSpec,
    RankedSpec,
)
from limbeck.objectives.class_logits import DistSpec, DkdSpec, LogitMseSpec, PseudoLabelSpec
from limbeck.objectives.comparisons import LayerComparison, comparison
from limbeck.objectives.consistency import ConsistencySpec
from limbeck.objectives.contextual import LayerRelationSpec, WordRelationSpec
from limbeck.objectives.contrastive import ContrastSpec
from limbeck.objectives.curriculum import CurriculumSpec
from limbeck.objectives.embedding_terms import EmbeddingSpec, SimilarityListSpec, SimilaritySpec
from limbeck.objectives.example_weights import (
    EXAMPLE_WEIGHTINGS,
    ExampleWeighting,
    ExampleWeights,
    WeightingSettings,
    WeightingSpec,
)
from limbeck.objectives.group import Objectives
from limbeck.objectives.hard_labels import FocalLabel, FocalSpec, HardLabel, HardSpec
from limbeck.objectives.layer_match import LayerMatch, LayerSpec
from limbeck.objectives.mapped import Mapped, MappedSpec
from limbeck.objectives.matched import MappedTerm
from limbeck.objectives.per_teacher import ErrorWeightedSpec, TeamObjectives
from limbeck.objectives.predictions import SoftLabel, SoftSpec
from limbeck.objectives.registration import (
    RECORDED,
    UNKNOWN_TERM,
    TermSpec,
    class_of,
    objective,
    plain_terms,
)
from limbeck.objectives.shape import ModelShape, Shape

__all__ = [
    "EXAMPLE_WEIGHTINGS",
    "OBJECTIVES",
    "RECORDED",
    "UNKNOWN_TERM",
    "AttentionSpec",
    "ConsistencySpec",
    "ContrastSpec",
    "CurriculumSpec",
    "DistSpec",
    "DkdSpec",
    "EmbeddingSpec",
    "ErrorWeightedSpec",
    "ExampleWeighting",
    "ExampleWeights",
    "FocalLabel",
    "FocalSpec",
    "HardLabel",
    "HardSpec",
    "LayerComparison",
    "LayerMatch",
    "LayerRelationSpec",
    "LayerSpec",
    "ListwiseSpec",
    "LogitMseSpec",
    "Mapped",
    "MappedSpec",
    "MappedTerm",
    "MarginSpec",
    "ModelShape",
    "Objective",
    "Objectives",
    "PairContrastSpec",
    "PseudoLabelSpec",
    "RankedSpec",
    "RelationSpec",
    "Shape",
    "SimilarityListSpec",
    "SimilaritySpec",
    "SoftLabel",
    "SoftSpec",
    "TeamObjectives",
    "TermSettings",
    "TermSpec",
    "WeightingSettings",
    "WeightingSpec",
    "WordRelationSpec",
    "class_of",
    "comparison",
    "objective",
    "plain_terms",
]
