"""Limbeck: distill a large fine-tuned Hugging Face transformer into a small, fast one.

    limbeck.distill("rail-kd-l", teacher="runs/teacher", task="mrpc", data="glue")

The names here are imported on first use, so that `import limbeck` does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limbeck import functional
    from limbeck.activations import ActivationKey, Request, Trace, capture
    from limbeck.cards.card import write_card
    from limbeck.cards.push import push
    from limbeck.compressing.compress import compress
    from limbeck.data import data_reader
    from limbeck.exporting.export_model import export
    from limbeck.labelling.label_rows import label
    from limbeck.latency.benching import bench
    from limbeck.mappings import mapping
    from limbeck.objectives import (
        HardSpec,
        LayerSpec,
        MappedSpec,
        MappedTerm,
        Objective,
        SoftSpec,
        TermSettings,
        comparison,
        objective,
    )
    from limbeck.predicting.job import Predictions
    from limbeck.predicting.predict_rows import predict
    from limbeck.recipe import Recipe
    from limbeck.run.distill import Result, distill
    from limbeck.run.grid import train_grid
    from limbeck.runtimes.predictor import OnnxPredictor
    from limbeck.scoring.evaluation import evaluate
    from limbeck.scoring.team import look_at_team
    from limbeck.students import build_student
    from limbeck.support.errors import LimbeckError
    from limbeck.support.step_state import StepState
    from limbeck.tasks.abstract_type import task_type
    from limbeck.teachers.teacher import Teacher
    from limbeck.training import DistillationConfig, DistillationTrainer

__all__ = [
    "ActivationKey",
    "DistillationConfig",
    "DistillationTrainer",
    "HardSpec",
    "LayerSpec",
    "LimbeckError",
    "MappedSpec",
    "MappedTerm",
    "Objective",
    "OnnxPredictor",
    "Predictions",
    "Recipe",
    "Request",
    "Result",
    "SoftSpec",
    "StepState",
    "Teacher",
    "TermSettings",
    "Trace",
    "bench",
    "build_student",
    "capture",
    "comparison",
    "compress",
    "data_reader",
    "distill",
    "evaluate",
    "export",
    "functional",
    "label",
    "look_at_team",
    "mapping",
    "objective",
    "predict",
    "push",
    "task_type",
    "train_grid",
    "write_card",
]

_HOMES = {
    "DistillationConfig": "limbeck.training",
    "DistillationTrainer": "limbeck.training",
    "LimbeckError": "limbeck.support.errors",
    "Recipe": "limbeck.recipe",
    "Request": "limbeck.activations",
    "Result": "limbeck.run",
    "HardSpec": "limbeck.objectives",
    "LayerSpec": "limbeck.objectives",
    "MappedSpec": "limbeck.objectives",
    "MappedTerm": "limbeck.objectives",
    "Objective": "limbeck.objectives",
    "OnnxPredictor": "limbeck.runtimes.predictor",
    "Predictions": "limbeck.predicting.job",
    "SoftSpec": "limbeck.objectives",
    "StepState": "limbeck.support.step_state",
    "Teacher": "limbeck.teachers.teacher",
    "TermSettings": "limbeck.objectives",
    "objective": "limbeck.objectives",
    "ActivationKey": "limbeck.activations",
    "Trace": "limbeck.activations",
    "bench": "limbeck.latency.benching",
    "build_student": "limbeck.students",
    "capture": "limbeck.activations",
    "comparison": "limbeck.objectives",
    "compress": "limbeck.compressing.compress",
    "data_reader": "limbeck.data",
    "distill": "limbeck.run",
    "evaluate": "limbeck.scoring",
    "export": "limbeck.exporting.export_model",
    "label": "limbeck.labelling.label_rows",
    "look_at_team": "limbeck.scoring",
    "mapping": "limbeck.mappings",
    "predict": "limbeck.predicting.predict_rows",
    "push": "limbeck.cards.push",
    "task_type": "limbeck.tasks",
    "train_grid": "limbeck.run",
    "write_card": "limbeck.cards.card",
}
# Public as they are.
_PACKAGES = ("functional",)
# From packages that ship with the core, which an installation may lack.
_BUNDLED = ("submit",)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"limbeck.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _BUNDLED:
        from limbeck.support.registry import FUNCTIONS

        if name in FUNCTIONS:
            return FUNCTIONS.get(name)
    raise AttributeError(f"module 'limbeck' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_BUNDLED])
