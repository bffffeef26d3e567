"""Whole runs: from a recipe to a shipped student, its record and its report."""

from limbeck.run.distill import distill
from limbeck.run.grid import Member, train_grid
from limbeck.run.result import Result

__all__ = [
    "Member",
    "Result",
    "distill",
    "train_grid",
]
