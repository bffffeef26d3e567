"""How likely each of several teachers is, fixed or learned, and who is sampled in a step. Part of `limbeck.teachers`.

A draw is a function of the run's seed and the step alone (and of what has been learned by then,
which checkpoints carry), so that a resumed run, and every process of a multi-process one, draws the
same teachers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from limbeck.functional import rank_distribution
from limbeck.support.errors import LimbeckError
from limbeck.support.registry import Registry
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


class LearnedProbabilities(nn.Module, ABC):
    """A π that is learned during training, in buffers, so that a checkpoint carries it.

    Its class is built of the number of teachers and, by name, of the settings that a recipe's `team` has for it.
    """

    @property
    @abstractmethod
    def probabilities(self) -> np.ndarray:
        """π as it is now."""

    @abstractmethod
    def pick(self, seed: int, step: int) -> int:
        """The teacher of a step."""

    @abstractmethod
    def reset(self) -> None:
        """Forget everything: a new student begins."""

    @abstractmethod
    def callback(self, trainer: Any, rows: Any) -> Any:
        """A callback of the Trainer's that teaches it, by rows that are not trained on.

        Raises:
            LimbeckError: no rows.
        """


LEARNED: Registry[type[LearnedProbabilities]] = Registry("learned sampling")
"""By the value of `team.by`."""


def learned(by: str, teachers: int, **settings: float) -> LearnedProbabilities:
    """The π of a name, nothing learned yet.

    Raises:
        LimbeckError: nothing installed has it.
    """
    if by not in LEARNED:
        raise LimbeckError(
            f"team.by: {by} is part of limbeck.lab, which is not installed",
            "install the whole of limbeck, or set team.by=uniform",
        )
    found: Any = LEARNED.get(by)
    return found(teachers, **settings)
