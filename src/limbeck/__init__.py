"""Limbeck: distil a large fine-tuned Hugging Face transformer into a small, fast one.

    limbeck.distill("rail-kd-l", teacher="runs/teacher", task="mrpc", data="glue")

What is named here is imported when it is first used, so that `import limbeck` does not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limbeck import functional
    from limbeck.capture import Request, Seen, Trace, capture
    from limbeck.engine import DistillationTrainer
    from limbeck.errors import LimbeckError
    from limbeck.recipe import Recipe
    from limbeck.run.distill import distill
    from limbeck.run.evaluate import evaluate
    from limbeck.run.grid import train_grid
    from limbeck.run.result import Result
    from limbeck.run.team import look_at_team
    from limbeck.students import build_student

__all__ = [
    "DistillationTrainer",
    "LimbeckError",
    "Recipe",
    "Request",
    "Result",
    "Seen",
    "Trace",
    "build_student",
    "capture",
    "distill",
    "evaluate",
    "functional",
    "look_at_team",
    "train_grid",
]

_HOMES = {
    "DistillationTrainer": "limbeck.engine",
    "LimbeckError": "limbeck.errors",
    "Recipe": "limbeck.recipe",
    "Request": "limbeck.capture",
    "Result": "limbeck.run",
    "Seen": "limbeck.capture",
    "Trace": "limbeck.capture",
    "build_student": "limbeck.students",
    "distill": "limbeck.run",
    "evaluate": "limbeck.run",
    "look_at_team": "limbeck.run",
    "train_grid": "limbeck.run",
}
# Public as they are; calling the package `limbeck.capture` calls its function of that name.
_PACKAGES = ("capture", "functional")


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"limbeck.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'limbeck' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
