"""Looking into trained models: which layers represent alike, which members of a team add anything.

Everything here is computed from checkpoints and predictions.
"""

from limbeck.reporting.analysis.diversity import Diversity, class_diversity, number_diversity
from limbeck.reporting.analysis.similarity_matrix import (
    Measure,
    layer_similarity,
    linear_cka,
    mean_cosine,
)
from limbeck.reporting.analysis.team_overview import TeamOverview, team_of

__all__ = [
    "Diversity",
    "Measure",
    "TeamOverview",
    "class_diversity",
    "layer_similarity",
    "linear_cka",
    "mean_cosine",
    "number_diversity",
    "team_of",
]
