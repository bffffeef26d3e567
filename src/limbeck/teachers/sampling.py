"""How likely each of several teachers is, and who is sampled in a step. Part of `limbeck.teachers`.

A draw is a function of the run's seed and the step alone (and of what a bandit has learned by then,
which checkpoints carry), so that a resumed run, and every process of a multi-process one, draws the
same teachers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from limbeck.functional import rank_distribution
from limbeck.support.step_state import StepState

# Keeps these draws apart from those of mappings and of MixUp.
_STREAM = 0x7EAC


def shares(
    by: str | Sequence[float], scores: Sequence[float | None] | None, count: int
) -> np.ndarray:
    """π: `uniform` (SKDBERT Eq. 1), ranks of `scores` (Eqs. 2 and 3), or numbers made to sum to 1.

    `scores`: the teachers' own for `teacher-rank`, their students' for `student-rank`; 0 to 100.

    Raises:
        LimbeckError: a score is missing or not finite.
    """
    if not isinstance(by, str):
        given = np.asarray(by, dtype=np.float64)
        return given / given.sum()
    if by.endswith("-rank"):
        known = [math.nan if score is None else score for score in scores or ()]
        values = torch.tensor(known, dtype=torch.float64)
        return rank_distribution(values).numpy()
    return np.full(count, 1 / count)


def draw(probabilities: np.ndarray, seed: int, step: int) -> int:
    """The teacher of a step: a number from 0, sampled from π."""
    generator = StepState(seed=seed, step=step).step_generator(_STREAM)
    return int(generator.choice(len(probabilities), p=probabilities))


class SamplingProbabilities:
    """A π that stays as it is."""

    def __init__(self, probabilities: Sequence[float] | np.ndarray) -> None:
        self.probabilities = np.asarray(probabilities, dtype=np.float64)

    def pick(self, seed: int, step: int) -> int:
        """The teacher of a step."""
        return draw(self.probabilities, seed, step)
