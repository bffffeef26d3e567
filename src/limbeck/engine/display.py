"""Progress a person can watch: a bar with the time left, and a line an epoch.

Part of `limbeck.engine`. On a terminal the bar moves; elsewhere only the epochs' lines are printed.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from limbeck.recipe import Recipe


class Display(TrainerCallback):
    """Shows steps, the running loss, dev scores and the time left on standard error."""

    def __init__(self, recipe: Recipe, *, shown: bool) -> None:
        self.name = f"{recipe.task} {recipe.method} seed {recipe.seed}"
        self.console = Console(stderr=True, quiet=not shown)
        self.bar: Progress | None = None
        self.task = TaskID(0)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar; only a terminal gets one."""
        if not state.is_world_process_zero or not self.console.is_terminal:
            return
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
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
        if self.bar is not None and logs and "learning_rate" in logs:
            self.bar.update(self.task, description=f"{self.name}  loss {logs['loss']:.3f}")

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
        self.console.print(
            f"{self.name}  epoch {state.epoch:.3g}/{args.num_train_epochs:g}  "
            f"dev {metrics['eval_primary']:.2f}",
            markup=False,
            highlight=False,
        )

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
