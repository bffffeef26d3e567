"""The default training settings of a method, without a paper's settings. Part of `limbeck.recipe`.

By default, epochs and learning rate follow the number of rows and the student's depth (`training_for`).
Free of torch, as `limbeck methods` shows it.
"""

import math
from functools import cache
from typing import Any, NamedTuple

from limbeck.recipe import catalog, fields, paper_settings

# Keys that are shown even if a paper does not state them.
_ALWAYS = (
    "epochs",
    "lr",
    "batch_size",
    "max_length",
    "lr_schedule",
    "warmup",
    "weight_decay",
    "select_by",
    "student.init",
)
_ALWAYS_FIRST = ("first_stage.epochs", "first_stage.lr", "first_stage.batch_size")
# Effective values of keys whose default is None.
_LEFT_OUT = {"adam_epsilon": 1e-8}
BY_ROWS = {"epochs": "by rows", "lr": "by depth"}
"""Text in tables for settings that `training_for` chooses."""


class Training(NamedTuple):
    """How long a student is trained, and at which peak learning rate."""

    epochs: float
    lr: float


USUAL = Training(epochs=3.0, lr=5e-5)
"""Where nothing else is known."""

STATIC = Training(epochs=10.0, lr=2e-3)
"""Epochs and learning rate of static students, whose vectors move independently."""

QUALITY = {"fast": 1 / 3, "usual": 1.0, "best": 3.0}
"""Multiples of the usual epochs."""

_SHORTENED_LR = 1e-4
_SHORTENED = 2 / 3
# Few rows need more epochs: a model has to take some steps before its scores mean anything.
_LEAST_STEPS = 200
# A step of a static student is some milliseconds, and moves the vectors of its own tokens alone.
_STATIC_STEPS, _STATIC_EPOCHS = 1_500, 30.0
_MOST_EPOCHS = 60.0


def training_for(rows: int, step: int, depth: float) -> Training:
    """Choose epochs and peak learning rate of a student that is trained on labels or a teacher's outputs.

    Args:
        rows: examples of one epoch.
        step: examples of one optimization step.
        depth: layers of the student, as a share of the layers that it was cut from or that teach it; 0 for a static
            student.
    """
    usual, least = STATIC if not depth else USUAL, least_epochs(rows, step, depth)
    lr = _SHORTENED_LR if 0 < depth <= _SHORTENED else usual.lr
    return Training(epochs=max(usual.epochs, least), lr=lr)


def least_epochs(rows: int, step: int, depth: float) -> float:
    """Epochs before which a student has hardly begun to learn; arguments as in `training_for`."""
    steps, most = (_LEAST_STEPS, _MOST_EPOCHS) if depth else (_STATIC_STEPS, _STATIC_EPOCHS)
    return float(min(max(1, math.ceil(steps * step / max(rows, 1))), most))


def travelled(lr: float, steps: int, schedule: str, warmup: float) -> float:
    """Add up the learning rates of all steps of a training, which bounds how far Adam moves a weight."""
    falls = 1.0 if schedule in ("constant_with_warmup", "step") else 0.5
    return lr * steps * (warmup / 2 + (1 - warmup) * falls)


def quick_settings(method: str) -> dict[str, Any]:
    """The dotted training keys of a shipped method as they are without any paper's settings."""
    own = dict(paper_settings.flat(catalog.read(method)))
    defaults = _defaults() | BY_ROWS
    known = [key for key in _known(method) if key in own or key in defaults]
    found = {key: own.get(key, defaults.get(key)) for key in (*_ALWAYS, *known)}
    if any(key.startswith("first_stage.") for key in own):
        found |= {key: own.get(key, found[key.partition(".")[2]]) for key in _ALWAYS_FIRST}
    return found


def _known(method: str) -> list[str]:
    """Dotted keys that some set of the method states."""
    sets = paper_settings.stated_of(method).values()
    return [
        key
        for one in sets
        for keys in (one.keys, *one.tasks.values())
        for key, _ in paper_settings.flat(keys)
    ]


@cache
def _defaults() -> dict[str, Any]:
    return fields.plain_defaults() | _LEFT_OUT
