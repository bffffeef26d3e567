"""What happens beside the step: epoch entries, early stopping, a check for non-finite losses.

Part of `limbeck.engine`. Callbacks hold no state of their own: what they decide follows from the Trainer's history,
which a checkpoint carries, so that a resumed run decides alike.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from limbeck.errors import LimbeckError

if TYPE_CHECKING:
    from limbeck.engine.trainer import DistillationTrainer


class EpochEntries(TrainerCallback):
    """Writes one entry an epoch into the trainer's progress: train means, active layers, dev scores."""

    def __init__(self, trainer: DistillationTrainer) -> None:
        self.trainer = trainer
        self.began = time.perf_counter()

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the epoch's clock."""
        self.began = time.perf_counter()

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the epoch's means."""
        progress = self.trainer.progress
        stop_if_not_finite(self.trainer)
        last = self.trainer.moment_of(state.global_step - 1)
        progress.epochs.append(
            {
                "epoch": len(progress.epochs) + 1,
                "step": state.global_step,
                "seconds": time.perf_counter() - self.began,
                "train": progress.this_epoch.means(),
                "active_layers": self.trainer.objectives.active_layers(last),
                "dev": {},
            }
        )
        progress.this_epoch.clear()

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the dev scores to the epoch just closed."""
        epochs = self.trainer.progress.epochs
        if metrics and epochs and epochs[-1]["step"] == state.global_step:
            epochs[-1]["dev"] = {
                name.removeprefix("eval_"): value
                for name, value in metrics.items()
                if name.startswith("eval_") and not name.endswith(_SPEEDS)
            }


_SPEEDS = ("_runtime", "_per_second", "_time")


class Patience(TrainerCallback):
    """Stops when the last `epochs` dev scores did not beat the best before them."""

    def __init__(self, epochs: int, metric: str) -> None:
        self.epochs = epochs
        self.metric = f"eval_{metric}"

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Decide from the scores logged so far."""
        scores = [entry[self.metric] for entry in state.log_history if self.metric in entry]
        since_best = len(scores) - 1 - scores.index(max(scores))
        if since_best >= self.epochs:
            control.should_training_stop = True


class CheckpointEvery(TrainerCallback):
    """Saves every `steps` optimisation steps, beside the save at the end of each epoch."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Ask for a checkpoint when the step's turn has come."""
        if state.global_step % self.steps == 0:
            control.should_save = True


def stop_if_not_finite(trainer: DistillationTrainer) -> None:
    """End the run when a term stopped being a number.

    Raises:
        LimbeckError: names the terms and the step.
    """
    broken = trainer.progress.non_finite()
    if broken:
        raise LimbeckError(
            f"non-finite loss by step {trainer.state.global_step}: {', '.join(broken)}",
            "lower lr, raise warmup, or run with precision fp32; the last checkpoint is kept",
        )
