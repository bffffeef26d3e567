"""Experiment trackers that a run reports to: TensorBoard, W&B, MLflow, whatever transformers has a callback for.

Part of `limbeck.training`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback
from transformers.integrations import integration_utils

from limbeck.support.errors import Problem, unknown
from limbeck.training.arguments import tensorboard
from limbeck.training.tracked_recipe import TrackedRecipe
from limbeck.training.tracker_runs import ContinuedRuns

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


@contextmanager
def reporting(
    trainer: Trainer,
    names: Sequence[str],
    events: Path,
    recipe: Mapping[str, Any] | None = None,
) -> Iterator[None]:
    """Report what is trained inside to the trackers, as a run of its own, however it ends; continued, as the same run.

    transformers leaves W&B's run open for whatever this process trains next, and MLflow's after an error;
    once it is closed nothing more can be logged. A run that the user opened before is joined, and left open.

    Args:
        names: trackers that `tracker_problems` finds nothing wrong with.
        events: TensorBoard's folder; the others take their places from environment variables of their own.
        recipe: what TensorBoard, W&B and MLflow are told of the run, in plain values.
    """
    opened = {name: _is_open(name) for name in names}
    callbacks: list[TrainerCallback] = [
        tensorboard(events) if name == "tensorboard" else _CALLBACKS[name]() for name in names
    ]
    if callbacks:
        before = ContinuedRuns(Path(str(trainer.args.output_dir)), names)
        callbacks = [before, TrackedRecipe(recipe or {}, callbacks), *callbacks]
    for callback in callbacks:
        trainer.add_callback(callback)
    try:
        yield
    finally:
        for callback in callbacks:
            trainer.remove_callback(callback)
        for name, before_us in opened.items():
            if not before_us and _is_open(name):
                _close(name)


def _is_open(name: str) -> bool:
    tracker = sys.modules.get(name)
    if tracker is None:
        return False
    if name == "wandb":
        return tracker.run is not None
    return name == "mlflow" and tracker.active_run() is not None


def _close(name: str) -> None:
    tracker = sys.modules[name]
    if name == "wandb":
        tracker.finish()
    else:
        tracker.end_run()
