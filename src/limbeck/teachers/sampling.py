"""How likely each of several teachers is, fixed or learned, and who is sampled in a step. Part of `limbeck.teachers`.

A draw is a function of the run's seed and the step alone (and of what a bandit has learned by then,
which checkpoints carry), so that a resumed run, and every process of a multi-process one, draws the
same teachers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from limbeck.functional import rank_distribution
from limbeck.support.machine import ReadOnce
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


# A sampling distribution learned during training (limbeck's own: SKDBERT's future work). The teachers are the arms of
# an adversarial bandit (Exp3, Auer et al. 2002) whose reward is progress: how far the student's loss on rows held out
# of the training split fell while a teacher was at work. Rewards shrink as training converges, so each is placed
# between the quantiles of those before it (Graves et al. 2017, "Automated Curriculum Learning", §2.3).


# Rewards that are remembered to scale the next one by, and the quantiles it is placed between.
_REMEMBERED = 100
_LOW, _HIGH = 0.2, 0.8


class Bandit(nn.Module):
    """π = (1 − ε)·softmax(w) + ε/n; after a block w_i ← w_i + η·r/π_i, for its teacher i.

    All state lies in buffers, so a checkpoint carries it.

    Args:
        teachers: how many there are, n.
        block: optimisation steps for which a sampled teacher stays.
        explore: ε.
        rate: η.
    """

    weights: Tensor
    rewards: Tensor
    seen: Tensor
    before: Tensor

    def __init__(
        self, teachers: int, *, block: int = 10, explore: float = 0.2, rate: float = 0.1
    ) -> None:
        super().__init__()
        self.block, self.explore, self.rate = block, explore, rate
        self.register_buffer("weights", torch.zeros(teachers, dtype=torch.float64))
        self.register_buffer("rewards", torch.zeros(_REMEMBERED, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("before", torch.full((), math.nan, dtype=torch.float64))
        self._read = ReadOnce()

    def reset(self) -> None:
        """Forget everything: a new student begins."""
        for state in (self.weights, self.rewards, self.seen):
            state.zero_()
        self.before.fill_(math.nan)

    @property
    def probabilities(self) -> np.ndarray:
        """π as it is now."""
        learned = self._read(self.weights).softmax(0).numpy()
        return (1 - self.explore) * learned + self.explore / len(learned)

    def pick(self, seed: int, step: int) -> int:
        """The teacher of the block that a step is in; asked about the current block only."""
        return draw(self.probabilities, seed, step // self.block * self.block)

    def ends_block(self, step: int) -> bool:
        """Whether so many steps make whole blocks."""
        return step % self.block == 0

    def begin(self, loss: float) -> None:
        """The loss on the held-out rows before the first step."""
        if math.isnan(self.before.item()):
            self.before.fill_(loss)

    def learn(self, teacher: int, loss: float) -> None:
        """A block has ended, and the loss on the held-out rows is now this."""
        drop = self.before.item() - loss
        self.before.fill_(loss)
        reward = self._scaled(drop)
        self.rewards[self.seen % _REMEMBERED] = drop
        self.seen += 1
        self.weights[teacher] += self.rate * reward / float(self.probabilities[teacher])

    def _scaled(self, drop: float) -> float:
        """Between −1 and 1: where the drop lies among those before it; 0 for the first."""
        known = self.rewards[: min(int(self.seen), _REMEMBERED)]
        if not len(known):
            return 0.0
        low, high = torch.quantile(known, torch.tensor([_LOW, _HIGH], dtype=known.dtype)).tolist()
        if high - low < 1e-12:
            return float(np.sign(drop - low))
        return float(np.clip(2 * (drop - low) / (high - low) - 1, -1, 1))
