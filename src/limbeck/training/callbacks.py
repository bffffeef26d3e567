"""Callbacks around the step: epoch entries, early stopping, a check for non-finite losses, reports to trackers.

Part of `limbeck.training`. Callbacks hold no state of their own: their decisions follow from the
Trainer's history, which a checkpoint contains, so that a resumed run decides the same.
"""

import copy
import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.progress import Progress as Bar
from rich.progress import TaskID
from transformers import (
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations import TensorBoardCallback, integration_utils

from limbeck.recipe import Recipe, Stage
from limbeck.support import plain, terminal
from limbeck.support.errors import Problem, problem_list, raise_problems, unknown
from limbeck.tasks import LOWER_IS_BETTER
from limbeck.training.progress import stop_if_not_finite
from limbeck.training.step import TakesSteps


class EpochEntries(TrainerCallback):
    """Writes one entry an epoch into the progress: train means, active layers, dev scores."""

    def __init__(self, trainer: TakesSteps) -> None:
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Put the log of the student's earlier stages first; a continued training has it from its checkpoint."""
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
        """Let the terms update the state that they learn without gradients."""
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
    """The callbacks that a trainer's user added: those in `given`, or all that are not limbeck's own."""
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
    """Saves every `steps` optimization steps, in addition to the save at the end of each epoch.

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


# Progress for a person to watch: a bar with the time left, and one line per epoch. On a terminal the bar
# moves; elsewhere a line is printed when training begins, after every minute, and after every epoch.


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
        self.console = terminal.messages(shown=shown)
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
            terminal.print_line(
                self.console, f"{self.name}  training: {state.max_steps} steps{rest}"
            )
            return
        self.bar = terminal.step_bar(self.console)
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
        """A line with the epoch if the arguments count epochs, otherwise with the step."""
        self.said = time.monotonic()
        place = f"step {state.global_step}/{state.max_steps}"
        if args is not None and args.max_steps <= 0:
            place = f"epoch {state.epoch:.3g}/{args.num_train_epochs:g}"
        terminal.print_line(self.console, f"{self.name}  {place}{what}")

    def close(self) -> None:
        """Take the bar down; also after an error, so that the terminal stays usable."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Close the bar."""
        self.close()


_CALLBACKS = integration_utils.INTEGRATION_TO_CALLBACK
# Packages that are not called as their tracker.
_PACKAGES = {
    "tensorboard": "'limbeck[tensorboard]'",
    "azure_ml": "azureml-core azureml-mlflow",
    "comet_ml": "comet-ml",
    "flyte": "flytekit",
}


@problem_list
def tracker_problems(names: Sequence[str]) -> Iterator[Problem]:
    """Trackers that transformers does not know, or that are not installed; each with its fix."""
    there = set(integration_utils.get_available_reporting_integrations())
    if find_spec("flytekit") is not None:  # transformers forgets it in its list
        there.add("flyte")

    for name in names:
        if name not in _CALLBACKS:
            yield unknown("tracker in report_to:", name, sorted(_CALLBACKS))
        elif name not in there:
            package = _PACKAGES.get(name, name)
            yield Problem(
                f"report_to: {name} is not installed", f"pip install {package}, or leave it out"
            )


def tensorboard(events: Path) -> TensorBoardCallback:
    """Logs everything the Trainer logs, for TensorBoard, in a folder.

    Raises:
        LimbeckError: TensorBoard is not installed.
    """
    raise_problems(tracker_problems(["tensorboard"]))
    callback = TensorBoardCallback()
    # It would take the place from the environment, for every run of this process.
    callback.logging_dir = str(events)
    return callback


@contextmanager
def reporting(
    trainer: Trainer, names: Sequence[str], events: Path, recipe: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Report an inner training to the trackers as a separate run, and close that run even after an error.

    transformers leaves W&B's run open for whatever this process trains next, and MLflow's after an error;
    once it is closed nothing more can be logged. A run that the user opened before is joined, and left open.

    Args:
        names: trackers without an entry in `tracker_problems`.
        events: TensorBoard's folder; the other trackers read their folders from environment variables.
        recipe: plain values of the run for TensorBoard, W&B and MLflow.
    """
    ours = [name for name in names if name in _TRACKERS and _open_id(name) is None]
    callbacks: list[TrainerCallback] = [
        tensorboard(events) if name == "tensorboard" else _CALLBACKS[name]() for name in names
    ]
    if callbacks:
        callbacks = [TrackedRecipe(recipe or {}, callbacks), *callbacks]
    for callback in callbacks:
        trainer.add_callback(callback)
    try:
        yield
    finally:
        for callback in callbacks:
            trainer.remove_callback(callback)
        for name in ours:
            if _open_id(name) is not None:
                _TRACKERS[name].close(sys.modules[name])


log = logging.getLogger(__name__)

# The run to close and to send the recipe to; `module` is the tracker's own.


class _Wandb:
    callback = "WandbCallback"

    def open_id(self, module: Any) -> str | None:
        return None if module.run is None else str(module.run.id)

    def close(self, module: Any) -> None:
        module.finish()

    def settings(self, module: Any, recipe: Mapping[str, Any]) -> None:
        module.run.config.update({"recipe": dict(recipe)}, allow_val_change=True)

    def scores(self, module: Any, scores: Mapping[str, float], step: int) -> None:
        module.run.summary.update({**scores, "best/step": step})


class _Mlflow:
    callback = "MLflowCallback"

    def open_id(self, module: Any) -> str | None:
        run = module.active_run()
        return None if run is None else str(run.info.run_id)

    def close(self, module: Any) -> None:
        module.end_run()

    def settings(self, module: Any, recipe: Mapping[str, Any]) -> None:
        longest = module.utils.validation.MAX_PARAM_VAL_LENGTH
        try:
            module.log_params({name: text[:longest] for name, text in flattened(recipe, "recipe")})
        # The user's own run, which had another recipe before: logged values cannot be changed.
        except module.exceptions.MlflowException as error:
            log.warning("MLflow does not take the recipe: %s", str(error).splitlines()[0])

    def scores(self, module: Any, scores: Mapping[str, float], step: int) -> None:
        module.log_metrics(dict(scores), step=step)


_TRACKERS: dict[str, _Wandb | _Mlflow] = {"wandb": _Wandb(), "mlflow": _Mlflow()}


def _open_id(name: str) -> str | None:
    module = sys.modules.get(name)
    return None if module is None else _TRACKERS[name].open_id(module)


_EVAL = "eval_"


class TrackedRecipe(TrainerCallback):
    """Sends the trackers limbeck's values that transformers' callbacks do not know.

    Before the first step it sends the recipe, at the end the dev scores of the best epoch. It has to come
    before the trackers' own callbacks: MLflow's closes its run when training ends.
    """

    def __init__(self, recipe: Mapping[str, Any], callbacks: Sequence[TrainerCallback]) -> None:
        self.recipe, self.callbacks = dict(recipe), callbacks
        self.sent = False

    def on_step_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """All trackers are open by the first step."""
        if self.sent or not state.is_world_process_zero:
            return
        self.sent = True
        for name in self._open():
            _TRACKERS[name].settings(sys.modules[name], self.recipe)
        for writer in self._writers():
            # It shows Markdown, where lines indented by four spaces stay as they are.
            lines = plain.write_yaml(self.recipe).splitlines()
            writer.add_text("recipe", "\n".join(f"    {line}" for line in lines))

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        """Scores as `best/accuracy`, …"""
        scores, step = best_scores(state), state.best_global_step or 0
        if not scores or not state.is_world_process_zero:
            return
        for name in self._open():
            _TRACKERS[name].scores(sys.modules[name], scores, step)
        for writer in self._writers():
            for name, value in scores.items():
                writer.add_scalar(name, value, step)

    def _open(self) -> list[str]:
        used = {type(callback).__name__ for callback in self.callbacks}
        known = [name for name, tracker in _TRACKERS.items() if tracker.callback in used]
        return [name for name in known if _open_id(name) is not None]

    def _writers(self) -> list[Any]:
        boards = (one for one in self.callbacks if isinstance(one, TensorBoardCallback))
        return [one.tb_writer for one in boards if getattr(one, "tb_writer", None) is not None]


def best_scores(state: TrainerState) -> dict[str, float]:
    """`best/METRIC` → the dev score of the epoch that is kept; none where no epoch is chosen."""
    for entry in state.log_history:
        if entry.get("step") == state.best_global_step and any(
            key.startswith(_EVAL) for key in entry
        ):
            return {
                f"best/{key.removeprefix(_EVAL)}": value
                for key, value in entry.items()
                if key.startswith(_EVAL)
                and not key.endswith(_SPEEDS)
                and isinstance(value, int | float)
            }
    return {}


def flattened(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """`recipe.student.layers` and its value as text, for everything that is set."""
    for key, value in settings.items():
        name = f"{prefix}.{key}"
        if isinstance(value, Mapping) and value:
            yield from flattened(value, name)
        elif value is not None:
            yield name, value if isinstance(value, str) else json.dumps(value)
