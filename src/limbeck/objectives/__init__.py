"""Objectives: the terms of a loss, each asking for what it needs and returning one named scalar.

One file a family: what a recipe may say of it, the term, and its traits.
"""

from limbeck.objectives.base import OBJECTIVES, ModelShape, Objective, Shape, TermSettings
from limbeck.objectives.consistency import ConsistencySpec
from limbeck.objectives.contrastive import ContrastSpec
from limbeck.objectives.curriculum import CurriculumSpec
from limbeck.objectives.embedding_terms import (
    EmbeddingSpec,
    ListwiseSpec,
    MarginSpec,
    PairContrastSpec,
    RankedSpec,
    SimilarityListSpec,
    SimilaritySpec,
)
from limbeck.objectives.example_weights import (
    EXAMPLE_WEIGHTINGS,
    ExampleWeighting,
    ExampleWeights,
    WeightingSettings,
    WeightingSpec,
)
from limbeck.objectives.group import Loss, Objectives
from limbeck.objectives.layer_match import LayerMatch, LayerSpec
from limbeck.objectives.mapped import LayerComparison, Mapped, MappedSpec, MappedTerm, comparison
from limbeck.objectives.per_teacher import ErrorWeightedSpec, TeamObjectives
from limbeck.objectives.predictions import (
    DistSpec,
    DkdSpec,
    FocalLabel,
    FocalSpec,
    HardLabel,
    HardSpec,
    LogitMseSpec,
    PseudoLabelSpec,
    SoftLabel,
    SoftSpec,
)
from limbeck.objectives.registration import (
    RECORDED,
    UNKNOWN_TERM,
    TermSpec,
    class_of,
    objective,
    plain_terms,
)
from limbeck.objectives.relations import (
    AttentionSpec,
    LayerRelationSpec,
    RelationSpec,
    WordRelationSpec,
)

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
    "Loss",
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
