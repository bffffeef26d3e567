"""Whole runs: from a recipe to a shipped student, its record and its report."""

from limbeck.run.distill import Result, distill
from limbeck.run.grid import Member, train_grid

__all__ = ["Member", "Result", "distill", "train_grid"]
