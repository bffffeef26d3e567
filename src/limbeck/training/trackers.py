"""Experiment trackers that a run reports to: TensorBoard, W&B, MLflow, whatever transformers has a callback for.

Part of `limbeck.training`.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerState
from transformers.integrations import TensorBoardCallback, integration_utils

from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.plain import write_yaml

_CALLBACKS = integration_utils.INTEGRATION_TO_CALLBACK
# Packages that are not called as their tracker.
_PACKAGES = {
    "tensorboard": "'limbeck[tensorboard]'",
    "azure_ml": "azureml-core azureml-mlflow",
    "comet_ml": "comet-ml",
    "flyte": "flytekit",
}


def tracker_problems(names: Sequence[str]) -> list[Problem]:
    """Trackers that transformers does not know, or that are not installed; each with its fix."""
    there = set(integration_utils.get_available_reporting_integrations())
    if find_spec("flytekit") is not None:  # transformers forgets it in its list
        there.add("flyte")
    problems = []
    for name in names:
        if name not in _CALLBACKS:
            problems.append(unknown("tracker in report_to:", name, sorted(_CALLBACKS)))
        elif name not in there:
            package = _PACKAGES.get(name, name)
            problems.append(
                Problem(
                    f"report_to: {name} is not installed",
                    f"pip install {package}, or leave it out",
                )
            )
    return problems


def tensorboard(events: Path) -> TensorBoardCallback:
    """Logs everything the Trainer logs, for TensorBoard, in a folder.

    Raises:
        LimbeckError: TensorBoard is not installed.
    """
    if problems := tracker_problems(["tensorboard"]):
        raise LimbeckError(problems)
    callback = TensorBoardCallback()
    # It would take the place from the environment, for every run of this process.
    callback.logging_dir = str(events)
    return callback


@contextmanager
def reporting(
    trainer: Trainer,
    names: Sequence[str],
    events: Path,
    recipe: Mapping[str, Any] | None = None,
) -> Iterator[None]:
    """Report what is trained inside to the trackers, as a run of its own, however it ends.

    transformers leaves W&B's run open for whatever this process trains next, and MLflow's after an error;
    once it is closed nothing more can be logged. A run that the user opened before is joined, and left open.

    Args:
        names: trackers that `tracker_problems` finds nothing wrong with.
        events: TensorBoard's folder; the others take their places from environment variables of their own.
        recipe: what TensorBoard, W&B and MLflow are told of the run, in plain values.
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

# What limbeck closes and tells the recipe; `module` is the tracker's own.


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
        # A run of the user's own, which had another recipe before: what was logged cannot be changed.
        except module.exceptions.MlflowException as error:
            log.warning("MLflow does not take the recipe: %s", str(error).splitlines()[0])

    def scores(self, module: Any, scores: Mapping[str, float], step: int) -> None:
        module.log_metrics(dict(scores), step=step)


_TRACKERS: dict[str, _Wandb | _Mlflow] = {"wandb": _Wandb(), "mlflow": _Mlflow()}


def _open_id(name: str) -> str | None:
    module = sys.modules.get(name)
    return None if module is None else _TRACKERS[name].open_id(module)


_EVAL = "eval_"
_SPEEDS = ("_runtime", "_per_second", "_time")


class TrackedRecipe(TrainerCallback):
    """Tells the trackers that limbeck knows what transformers' callbacks do not.

    Before the first step it sends the recipe, at the end the dev scores of the epoch that is kept. It has to stand
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
            lines = write_yaml(self.recipe).splitlines()
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
