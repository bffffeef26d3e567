"""What happens beside the step: epoch entries, early stopping, a check for non-finite losses.

Part of `limbeck.training`. Callbacks hold no state of their own: what they decide follows from the
Trainer's history, which a checkpoint carries, so that a resumed run decides alike.
"""

import copy
import time
from typing import Any

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import TaskID
from transformers import (
    EarlyStoppingCallback,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)

from limbeck.recipe import Recipe, Stage
from limbeck.support.terminal import print_line, step_bar
from limbeck.tasks import LOWER_IS_BETTER
from limbeck.training.progress import stop_if_not_finite
from limbeck.training.step import TakesSteps


class EpochEntries(TrainerCallback):
    """Writes one entry an epoch into the progress: train means, active layers, dev scores."""

    def __init__(self, trainer: TakesSteps) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Put what the student's earlier stages logged first; a continued training has it from its checkpoint."""
        if state.global_step == 0:
            earlier = [part for part in self.trainer.parts if part.of_student]
            state.log_history[:0] = [entry for part in earlier for entry in part.log_history]

    def on_epoch_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Start the epoch's clock and order."""
        # A checkpoint of an epoch's last step may have been written before the epoch was closed.
        if state.global_step > 0:
            last = self.trainer.step_state_at(state.global_step - 1).epoch
            now = self.trainer.step_state_at(state.global_step).epoch
            if len(self.trainer.progress.epochs) == last < now:
                self.on_epoch_end(args, state, control)
        self.trainer.progress.epoch_clock.start()
        self.trainer.start_epoch(self.trainer.step_state_at(state.global_step).epoch)

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Let the terms learn what they learn without gradients."""
        step_state = self.trainer.step_state_at(state.global_step - 1)
        self.trainer.objectives.of(step_state.teacher).after_step()
        if (team := self.trainer.sampled_team) is not None:
            self.trainer.progress.sampled[team.names[step_state.teacher]] += 1

    def on_epoch_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Close the epoch's means."""
        progress = self.trainer.progress
        stop_if_not_finite(progress, state.global_step)
        last = self.trainer.step_state_at(state.global_step - 1)
        curriculum = self.trainer.objectives.of(0).curriculum
        if curriculum is not None:
            following = self.trainer.step_state_at(state.global_step)
            curriculum.end_epoch(progress.this_epoch.sums(), last, following)
        whom: dict[str, Any] = {}
        if (team := self.trainer.sampled_team) is not None:
            whom["sampled"] = {name: progress.sampled[name] for name in team.names}
            whom["sampling_probabilities"] = dict(
                zip(team.names, team.shares.tolist(), strict=True)
            )
        if (labelled := progress.this_epoch.labelled()) is not None:
            whom["labelled"] = labelled
        entry = whom | {
            "epoch": last.epoch + 1,
            "step": state.global_step,
            "seconds": progress.epoch_clock.stop(),
            "train": progress.this_epoch.means(),
            "active_layers": self.trainer.objectives.active_layers(last),
            "dev": {},
        }
        progress.end_epoch(entry, self.trainer.training_rows)

    def on_evaluate(
        self, args: Any, state: TrainerState, control: Any, metrics: Any = None, **kwargs: Any
    ) -> None:
        """Add the dev scores to the epoch just closed."""
        epochs = self.trainer.progress.epochs
        if metrics and epochs and epochs[-1]["step"] == state.global_step:
            epochs[-1]["dev"] = {
                name.removeprefix("eval_"): value
                for name, value in metrics.items()
                if name.startswith("eval_") and not name.endswith(_SPEEDS)
            }


def users_callbacks(trainer: TakesSteps, given: Any = None) -> list[TrainerCallback]:
    """The callbacks of a trainer that its user added: those of `given`, or all that are not its own."""
    known = trainer.callback_handler.callbacks
    if given is not None:
        classes = tuple(one for one in given if isinstance(one, type))
        return [one for one in known if one in given or type(one) in classes]
    added = [one for one in known if id(one) not in trainer.own_callbacks]
    # It counts epochs without a better score; a part has epochs of its own.
    return [copy.deepcopy(one) if isinstance(one, EarlyStoppingCallback) else one for one in added]


_SPEEDS = ("_runtime", "_per_second", "_time")


class Patience(TrainerCallback):
    """Stops when the last `epochs` dev scores did not beat the best before them."""

    def __init__(self, epochs: int, metric: str) -> None:
        self.epochs = epochs
        self.metric = f"eval_{metric}"
        self.lower_is_better = metric in LOWER_IS_BETTER

    def on_evaluate(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Decide from the scores logged so far."""
        scores = [entry[self.metric] for entry in state.log_history if self.metric in entry]
        if not scores:
            return
        best = min(scores) if self.lower_is_better else max(scores)
        since_best = len(scores) - 1 - scores.index(best)
        if since_best >= self.epochs:
            control.should_training_stop = True


class CheckpointEvery(TrainerCallback):
    """Saves every `steps` optimisation steps, beside the save at the end of each epoch.

    Not at an epoch's last step: its checkpoint comes a moment later, with the dev scores, and a run
    continued from one without them would skip the epoch's evaluation.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Ask for a checkpoint when the step's turn has come."""
        last_of_epoch = control.should_training_stop or float(state.epoch or 0).is_integer()
        if state.global_step % self.steps == 0 and not last_of_epoch:
            control.should_save = True


# Progress a person can watch: a bar with the time left, and a line an epoch. On a terminal the bar
# moves; elsewhere a line says when training begins, after every minute, and after every epoch.


_SECONDS = 60.0
"""Without a bar, a line at least this often where a loss is logged."""


class Display(TrainerCallback):
    """Shows steps, the running loss, dev scores and the time left on standard error."""

    def __init__(self, recipe: Recipe, *, shown: bool, stage: Stage | None = None) -> None:
        self.name = f"{recipe.task} {recipe.method} seed {recipe.seed}"
        if stage is not None and stage.of > 1:
            self.name += f" stage {stage.number}/{stage.of}"
        # Without dev scores an epoch's line holds the loss.
        self.unscored = stage is not None and not stage.last
        self.loss = ""
        self.console = Console(stderr=True, quiet=not shown, markup=False, emoji=False)
        self.bar: Bar | None = None
        self.task = TaskID(0)
        self.said = 0.0

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Open the bar; only a terminal gets one."""
        if not state.is_world_process_zero:
            return
        if not self.console.is_terminal:
            self.said = time.monotonic()
            rest = f", {state.global_step} of them made" if state.global_step else ""
            print_line(self.console, f"{self.name}  training: {state.max_steps} steps{rest}")
            return
        self.bar = step_bar(self.console)
        self.bar.start()
        self.task = self.bar.add_task(self.name, total=state.max_steps, completed=state.global_step)

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.update(self.task, completed=state.global_step)

    def on_log(
        self, args: Any, state: TrainerState, control: Any, logs: Any = None, **kwargs: Any
    ) -> None:
        """Show the running loss."""
        if logs and "learning_rate" in logs:
            self.loss = f"  loss {logs['loss']:.3f}"
            if self.bar is not None:
                self.bar.update(self.task, description=self.name + self.loss)
            elif state.is_world_process_zero and time.monotonic() - self.said >= _SECONDS:
                self._print(state, self.loss)

    def on_epoch_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Print the line of an epoch that is not scored."""
        if self.unscored and state.is_world_process_zero:
            self._print(state, self.loss, args)

    def on_evaluate(
        self, args: Any, state: TrainerState, control: Any, metrics: Any = None, **kwargs: Any
    ) -> None:
        """Print the epoch's dev score."""
        if not state.is_world_process_zero or not metrics or "eval_primary" not in metrics:
            return
        self._print(state, f"  dev {metrics['eval_primary']:.2f}", args)

    def _print(self, state: TrainerState, what: str, args: TrainingArguments | None = None) -> None:
        """A line of the epoch, by the arguments of a training that counts epochs; else of the step."""
        self.said = time.monotonic()
        place = f"step {state.global_step}/{state.max_steps}"
        if args is not None and args.max_steps <= 0:
            place = f"epoch {state.epoch:.3g}/{args.num_train_epochs:g}"
        print_line(self.console, f"{self.name}  {place}{what}")

    def close(self) -> None:
        """Take the bar down; also after an error, so that the terminal stays usable."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Close the bar."""
        self.close()
