"""What is wrong with the settings of a `DistillationConfig`, by their names. Part of `limbeck.training`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from transformers import TrainingArguments
from transformers.training_args import OptimizerNames

from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.training.method import OBJECTS
from limbeck.training.method_settings import MethodSettings
from limbeck.training.optimizer import Optimisation

CACHES = ("off", "auto", "memory", "disk")
DEFAULT_OPTIM: Any = next(one.default for one in fields(TrainingArguments) if one.name == "optim")


def check_optimisation(given: Any) -> None:
    """Raise LimbeckError for unknown keys, and numbers that mean nothing."""
    choices = [one.name for one in fields(Optimisation)]
    if not isinstance(given, Mapping):
        raise LimbeckError(
            f"optimisation: {given!r} is not a dict of settings", f"keys: {', '.join(choices)}"
        )
    wrong = [unknown("key in optimisation", key, choices) for key in given if key not in choices]
    if wrong:
        raise LimbeckError(wrong)
    Optimisation(**given)


def combination_problems(config: MethodSettings) -> list[Problem]:
    """Settings that do not go together, by their names."""
    problems = []
    if config.method is not None and config.objectives is not None:
        problems.append(
            Problem(
                "method, objectives: the terms are a method's or your own",
                "leave one of them out (method=None)",
            )
        )
    if config.cache_teacher_outputs not in CACHES:
        problems.append(unknown("cache_teacher_outputs", config.cache_teacher_outputs, CACHES))
    strategy = getattr(config, "train_sampling_strategy", "random")
    if config.group_by_length and strategy not in ("random", "group_by_length"):
        problems.append(
            Problem(
                f"group_by_length, train_sampling_strategy={strategy}: batches have one order",
                "leave one of them out",
            )
        )
    first: Any = config.first_stage
    if isinstance(first, Mapping) and (objects := [key for key in OBJECTS if key in first]):
        problems.append(
            Problem(
                f"first_stage.{', first_stage.'.join(objects)}: objects, and a configuration holds settings",
                "give them to the trainer: DistillationTrainer(…, first_stage={"
                + ", ".join(f'"{key}": …' for key in objects)
                + "})",
            )
        )
    return problems


def said_twice(given: Any, optim: Any, course: Any) -> list[Problem]:
    """An optimiser, or a course of the rate, that two settings say.

    Args:
        given: `optimisation`.
        optim: the Trainer's own name of an optimiser.
        course: `lr_scheduler_type`.
    """
    problems = []
    if not isinstance(given, Mapping):
        return []
    own = [key for key in ("momentum", "bert_adam") if given.get(key) not in (None, False)]
    if own and OptimizerNames(optim) != OptimizerNames(DEFAULT_OPTIM):
        problems.append(
            Problem(
                f"optimisation.{own[0]}, optim={optim}: a step is made by one optimiser",
                "leave one of them out",
            )
        )
    if given.get("milestones") and getattr(course, "value", course) not in (None, "constant"):
        problems.append(
            Problem(
                f"optimisation.milestones, lr_scheduler_type={course}: the rate has one course",
                "leave one of them out",
            )
        )
    return problems
