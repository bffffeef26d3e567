"""Looking into trained models: which layers represent alike, which members of a team add anything.

Reads checkpoints and answers only, after training on the way of a training step.
"""

from limbeck.analysis.calibration import Bin, Calibration, calibration_of
from limbeck.analysis.diversity import Diversity, class_diversity, number_diversity
from limbeck.analysis.similarity import Measure, layer_similarity, linear_cka, mean_cosine
from limbeck.analysis.team import Team, team_of

__all__ = [
    "Bin",
    "Calibration",
    "Diversity",
    "Measure",
    "Team",
    "calibration_of",
    "class_diversity",
    "layer_similarity",
    "linear_cka",
    "mean_cosine",
    "number_diversity",
    "team_of",
]
