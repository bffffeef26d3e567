"""Exp3 as a sampling distribution that is learned during training (limbeck's own: SKDBERT's future work).

The teachers are the arms of an adversarial bandit (Auer et al. 2002) whose reward is progress: how far the student's
loss on rows held out of the training split fell while a teacher was at work. Rewards shrink as training converges, so
each is placed between the quantiles of those before it (Graves et al. 2017, "Automated Curriculum Learning", §2.3).
"""

import math
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from limbeck.data import batches_of
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import ReadOnce, evaluating
from limbeck.teachers.team import LEARNED, LearnedProbabilities, draw
from limbeck.training.feeding import examples_in
from limbeck.training.step import TakesSteps

# Rewards that are remembered to scale the next one by, and the quantiles it is placed between.
_REMEMBERED = 100
_LOW, _HIGH = 0.2, 0.8


@LEARNED.register("adaptive")
class Bandit(LearnedProbabilities):
    """π = (1 − ε)·softmax(w) + ε/n; after a block w_i ← w_i + η·r/π_i, for its teacher i.

    All state is in buffers, so checkpoints contain it.

    Args:
        teachers: how many there are, n.
        block: optimization steps for which a sampled teacher stays.
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
        """The teacher of the block that a step is in; called for the current block only."""
        return draw(self.probabilities, seed, step // self.block * self.block)

    def ends_block(self, step: int) -> bool:
        """Whether this number of steps makes complete blocks."""
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
        """Between −1 and 1: the rank of the drop among the drops before it; 0 for the first."""
        known = self.rewards[: min(int(self.seen), _REMEMBERED)]
        if not len(known):
            return 0.0
        low, high = torch.quantile(known, torch.tensor([_LOW, _HIGH], dtype=known.dtype)).tolist()
        if high - low < 1e-12:
            return float(np.sign(drop - low))
        return float(np.clip(2 * (drop - low) / (high - low) - 1, -1, 1))

    def callback(self, trainer: TakesSteps, rows: Any) -> "LearnWhomToSample":
        """Judges a teacher at the end of each block."""
        return LearnWhomToSample(trainer, self, rows)


class LearnWhomToSample(TrainerCallback):
    """After each block of steps: the labels' loss on held-out rows, and the resulting reward of the teacher.

    The state is the bandit's own. Evaluation draws no random numbers, so training continues as it
    would have without.

    Raises:
        LimbeckError: no rows.
    """

    def __init__(self, trainer: TakesSteps, bandit: Bandit, rows: Any) -> None:
        if rows is None:
            raise LimbeckError(
                "a team that learns its sampling probabilities needs rows to measure its progress",
                "pass holdout=: some rows that are not trained on",
            )
        self.trainer = trainer
        self.bandit = bandit
        self.rows = rows
        self._batches: list[dict[str, Tensor]] | None = None

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Before the very first step: where the student starts."""
        if state.global_step == 0:
            self.bandit.begin(self._loss())

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """At the end of a block the teacher is judged."""
        if self.bandit.ends_block(state.global_step):
            teacher = self.trainer.step_state_at(state.global_step - 1).teacher
            self.bandit.learn(teacher, self._loss())

    def _loss(self) -> float:
        trainer, distiller = self.trainer, self.trainer.distiller
        total = torch.zeros((), dtype=torch.float32, device=trainer.args.device)
        with evaluating(distiller):
            for batch in self._prepared():
                with trainer.accelerator.autocast():
                    loss = distiller(**batch)["loss"]
                total += loss.float() * examples_in(batch)
        # Every process computes it; rounding may differ, and then the draws would.
        return float(broadcast(total).item()) / len(self.rows)

    def _prepared(self) -> list[dict[str, Tensor]]:
        if self._batches is None:
            trainer, size = self.trainer, self.trainer.args.per_device_eval_batch_size
            rows, collate = trainer.readable(self.rows)
            self._batches = list(batches_of(rows, collate, size, trainer.args.device))
        return self._batches
