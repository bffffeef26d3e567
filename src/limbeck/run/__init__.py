"""Whole runs: from a recipe to a shipped student, its record and its report."""

from limbeck.run.distill import distill
from limbeck.run.evaluation import evaluate, evaluation_of
from limbeck.run.grid import Member, train_grid
from limbeck.run.result import Result
from limbeck.run.team_review import TeamLook, look_at_team

__all__ = [
    "Member",
    "Result",
    "TeamLook",
    "distill",
    "evaluate",
    "evaluation_of",
    "look_at_team",
    "train_grid",
]
