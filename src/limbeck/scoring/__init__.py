"""Scoring finished models: a run's student, a checkpoint or an export, on any labeled rows."""

from limbeck.scoring.evaluation import evaluate, evaluation_of
from limbeck.scoring.scored_model import ScoredModel
from limbeck.scoring.team import TeamLook, look_at_team

__all__ = ["ScoredModel", "TeamLook", "evaluate", "evaluation_of", "look_at_team"]
