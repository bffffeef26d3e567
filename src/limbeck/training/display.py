"""Progress a person can watch: a bar with the time left, and a line an epoch.

Part of `limbeck.training`. On a terminal the bar moves; elsewhere a line says when training begins, after
every minute, and after every epoch.
"""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from limbeck.recipe import Recipe, Stage
from limbeck.support.terminal import print_line, step_bar

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
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.said = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
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

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Move the bar."""
        if self.bar is not None:
            self.bar.update(self.task, completed=state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Show the running loss."""
        if logs and "learning_rate" in logs:
            self.loss = f"  loss {logs['loss']:.3f}"
            if self.bar is not None:
                self.bar.update(self.task, description=self.name + self.loss)
            elif state.is_world_process_zero and time.monotonic() - self.said >= _SECONDS:
                self._print_step(state, self.loss)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Print the line of an epoch that is not scored."""
        if self.unscored and state.is_world_process_zero:
            self._print(args, state, self.loss)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Print the epoch's dev score."""
        if not state.is_world_process_zero or not metrics or "eval_primary" not in metrics:
            return
        self._print(args, state, f"  dev {metrics['eval_primary']:.2f}")

    def _print_step(self, state: TrainerState, what: str) -> None:
        self.said = time.monotonic()
        print_line(self.console, f"{self.name}  step {state.global_step}/{state.max_steps}{what}")

    def _print(self, args: TrainingArguments, state: TrainerState, what: str) -> None:
        # Where steps are counted nobody asked for a number of epochs.
        if args.max_steps > 0:
            self._print_step(state, what)
            return
        self.said = time.monotonic()
        epoch = f"epoch {state.epoch:.3g}/{args.num_train_epochs:g}"
        print_line(self.console, f"{self.name}  {epoch}{what}")

    def close(self) -> None:
        """Take the bar down; also after an error, so that the terminal stays usable."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar."""
        self.close()
