"""The recipe and the best epoch's scores, for trackers that limbeck knows. Part of `limbeck.training`.

transformers' callbacks send the Trainer's arguments and the student's configuration, which say neither the method
nor the task nor the teacher; and of scores the last epoch's come last, though another epoch's student is shipped.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import TensorBoardCallback

from limbeck.support.plain import write_yaml

log = logging.getLogger(__name__)

_EVAL = "eval_"
_SPEEDS = ("_runtime", "_per_second", "_time")


class TrackedRecipe(TrainerCallback):
    """Sends a recipe before the first step, and at the end the dev scores of the epoch that is kept.

    It has to stand before the trackers' own callbacks: MLflow's closes its run when training ends.
    """

    def __init__(self, recipe: Mapping[str, Any], callbacks: Sequence[TrainerCallback]) -> None:
        self.recipe, self.callbacks = dict(recipe), callbacks
        self.sent = False

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """All trackers are open by the first step."""
        if not self.sent and state.is_world_process_zero:
            self.sent = True
            for tracker in self._open():
                tracker.settings(self.recipe)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Scores as `best/accuracy`, …"""
        scores = best_scores(state)
        if scores and state.is_world_process_zero:
            for tracker in self._open():
                tracker.scores(scores, state.best_global_step or 0)

    def _open(self) -> Iterator[_Wandb | _Mlflow | _Tensorboard]:
        for callback in self.callbacks:
            writer = getattr(callback, "tb_writer", None)
            if isinstance(callback, TensorBoardCallback) and writer is not None:
                yield _Tensorboard(writer)
        wandb, mlflow = sys.modules.get("wandb"), sys.modules.get("mlflow")
        names = {type(callback).__name__ for callback in self.callbacks}
        if "WandbCallback" in names and wandb is not None and wandb.run is not None:
            yield _Wandb(wandb.run)
        if "MLflowCallback" in names and mlflow is not None and mlflow.active_run() is not None:
            yield _Mlflow(mlflow)


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


class _Wandb:
    def __init__(self, run: Any) -> None:
        self.run = run

    def settings(self, recipe: Mapping[str, Any]) -> None:
        self.run.config.update({"recipe": dict(recipe)}, allow_val_change=True)

    def scores(self, scores: Mapping[str, float], step: int) -> None:
        self.run.summary.update({**scores, "best/step": step})


class _Mlflow:
    def __init__(self, mlflow: Any) -> None:
        self.mlflow = mlflow

    def settings(self, recipe: Mapping[str, Any]) -> None:
        longest = self.mlflow.utils.validation.MAX_PARAM_VAL_LENGTH
        flat = {name: text[:longest] for name, text in flattened(recipe, "recipe")}
        try:
            self.mlflow.log_params(flat)
        # A run of the user's own, which had another recipe before: what was logged cannot be changed.
        except self.mlflow.exceptions.MlflowException as error:
            log.warning("MLflow does not take the recipe: %s", str(error).splitlines()[0])

    def scores(self, scores: Mapping[str, float], step: int) -> None:
        self.mlflow.log_metrics(dict(scores), step=step)


class _Tensorboard:
    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def settings(self, recipe: Mapping[str, Any]) -> None:
        # It shows Markdown, where lines indented by four spaces stay as they are.
        lines = write_yaml(dict(recipe)).splitlines()
        self.writer.add_text("recipe", "\n".join(f"    {line}" for line in lines))

    def scores(self, scores: Mapping[str, float], step: int) -> None:
        for name, value in scores.items():
            self.writer.add_scalar(name, value, step)


def flattened(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """`recipe.student.layers` and its value as text, for everything that is set."""
    for key, value in settings.items():
        name = f"{prefix}.{key}"
        if isinstance(value, Mapping) and value:
            yield from flattened(value, name)
        elif value is not None:
            yield name, value if isinstance(value, str) else json.dumps(value)
