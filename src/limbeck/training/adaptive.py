"""Shows a bandit what each teacher's steps were worth. Part of `limbeck.training`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast
from torch import Tensor
from torch.utils.data import Subset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from limbeck.data import batches_of
from limbeck.data.row_facts import facts_of
from limbeck.support.errors import LimbeckError
from limbeck.tasks.abstract_type import labelled_rows
from limbeck.teachers import Bandit
from limbeck.training.running_trainer import RunningTrainer
from limbeck.training.step_weights import examples_in

HELD_OUT = 128
"""Training rows held out where nobody says how many."""


def hold_out(rows: Any, count: int | None, seed: int) -> tuple[Any, Any]:
    """Rows to see progress on, sampled from the labelled training rows, and those that are left to train on.

    Raises:
        LimbeckError: there are no more rows than are to be held out.
    """
    count, known = count or HELD_OUT, 0 if rows is None else len(rows)
    labelled = _labelled(rows, known)
    if count >= len(labelled):
        raise LimbeckError(
            f"team.holdout: {count} of {len(labelled)} training rows",
            "hold out fewer, train on more, or pass holdout=: rows that are not trained on",
        )
    order = labelled[np.random.default_rng([seed, count]).permutation(len(labelled))]
    held = np.sort(order[:count])
    places = held, np.setdiff1d(np.arange(known), held)
    take = getattr(rows, "select", None) or (lambda chosen: Subset(rows, chosen.tolist()))
    aside, left = (take(chosen) for chosen in places)
    return aside, left


def _labelled(rows: Any, known: int) -> np.ndarray:
    """Places of the rows that progress can be seen on: of a table those with a label for the whole example."""
    labels = facts_of(rows).labels
    return np.arange(known) if labels is None else np.flatnonzero(labelled_rows(labels))


class LearnWhomToSample(TrainerCallback):
    """After each block of steps: the labels' loss on held-out rows, and what it says of the teacher.

    The state is the bandit's own. Evaluation draws no random numbers, so training goes on as it
    would have without.

    Raises:
        LimbeckError: no rows.
    """

    def __init__(self, trainer: RunningTrainer, bandit: Bandit, rows: Any) -> None:
        if rows is None:
            raise LimbeckError(
                "a team that learns whom to sample needs rows to see its progress on",
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

    @torch.no_grad()
    def _loss(self) -> float:
        trainer, distiller = self.trainer, self.trainer.distiller
        was_training = distiller.training
        distiller.eval()
        total = torch.zeros((), dtype=torch.float32, device=trainer.args.device)
        for batch in self._prepared():
            with trainer.accelerator.autocast():
                loss = distiller(**batch)["loss"]
            total += loss.float() * examples_in(batch)
        distiller.train(was_training)
        # Every process computes it; rounding may differ, and then the draws would.
        return float(broadcast(total).item()) / len(self.rows)

    def _prepared(self) -> list[dict[str, Tensor]]:
        if self._batches is None:
            trainer, size = self.trainer, self.trainer.args.per_device_eval_batch_size
            rows, collate = trainer.readable(self.rows)
            self._batches = list(batches_of(rows, collate, size, trainer.args.device))
        return self._batches
