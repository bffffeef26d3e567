"""`DistillationConfig`: the arguments of a `DistillationTrainer`. Part of `limbeck.training`."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from transformers import TrainingArguments
from transformers.trainer_utils import SchedulerType

from limbeck.objectives.registration import plain_terms
from limbeck.recipe import Recipe
from limbeck.recipe.quick import USUAL, training_for
from limbeck.recipe.validation import check
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.tasks import TaskType
from limbeck.training.config_checks import (
    DEFAULT_OPTIM,
    check_optimisation,
    combination_problems,
    said_twice,
)
from limbeck.training.method import method_defaults
from limbeck.training.method_settings import BESIDE, OWN_SETTINGS, MethodSettings
from limbeck.training.optimizer import Optimisation

_DICTS = [
    *("objectives", "curriculum", "example_weights", "mixup", "input_transform", "first_stage"),
    "optimisation",
]
_OF_TERMS = ("objectives", "first_stage")
_BY_ROWS = {"num_train_epochs": "epochs", "learning_rate": "lr"}
_TERMS = ("objectives", *BESIDE, "first_stage")


@dataclass
class DistillationConfig(MethodSettings, TrainingArguments):
    """`TrainingArguments` with a method: what `DistillationTrainer` takes as `args`.

    Training settings that are left out are the method's own, and stand in the made object: epochs or steps,
    learning rate, its schedule and warm-up, batch size, accumulation, weight decay, epsilon, clipping, seed
    and optimiser. Epochs and learning rate that the method leaves open follow the rows and the student: a
    trainer has them (`trainer.args`), and until then the usual ones stand here. Everything can be written to
    JSON and read back (`to_dict`); settings of terms given as objects become plain values. `HfArgumentParser`
    reads it from a command line.

    Raises:
        LimbeckError: unknown names, values and combinations, all together.
    """

    # Arguments that a trainer chooses by its rows; without annotation it is no setting.
    by_rows = tuple[str, ...]()

    _VALID_DICT_FIELDS = [*TrainingArguments._VALID_DICT_FIELDS, "method", *_DICTS]  # noqa: RUF012

    # Of the Trainer's arguments those that a method sets: None, which the Trainer's own types do not have, until
    # `__post_init__` puts the method's in. mypy takes each for another type than the base class's.
    num_train_epochs: float | None = field(
        default=None, metadata={"help": "Passes over the training rows."}
    )  # type: ignore[assignment]
    max_steps: int | None = field(
        default=None, metadata={"help": "Steps at most, overriding the epochs."}
    )  # type: ignore[assignment]
    learning_rate: float | None = field(default=None, metadata={"help": "Peak learning rate."})  # type: ignore[assignment]
    per_device_train_batch_size: int | None = field(
        default=None, metadata={"help": "Batch size in training."}
    )  # type: ignore[assignment]
    gradient_accumulation_steps: int | None = field(
        default=None, metadata={"help": "Batches of one step."}
    )  # type: ignore[assignment]
    lr_scheduler_type: SchedulerType | str | None = field(
        default=None, metadata={"help": "Course of the rate."}
    )  # type: ignore[assignment]
    warmup_steps: float | None = field(
        default=None, metadata={"help": "Steps, or (below 1) share, of rising rate."}
    )  # type: ignore[assignment]
    weight_decay: float | None = field(default=None, metadata={"help": "Weight decay."})  # type: ignore[assignment]
    adam_epsilon: float | None = field(default=None, metadata={"help": "Epsilon of AdamW."})  # type: ignore[assignment]
    max_grad_norm: float | None = field(
        default=None, metadata={"help": "Gradients are clipped to this norm."}
    )  # type: ignore[assignment]
    seed: int | None = field(
        default=None, metadata={"help": "Seed of initialisation, order, dropout and draws."}
    )  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self._make_plain()
        if problems := self._problems():
            raise LimbeckError(problems)
        if self.objectives is None and self.method is None:
            self.method = "kd"
        recipe = self.recipe()
        if self.optimisation is None:
            self.optimisation = self._of_method(recipe)
        else:
            check_optimisation(self.optimisation)
            if self.lr_scheduler_type is None and self.how_to_optimise().milestones:
                self.lr_scheduler_type = "constant"  # what falls in steps is else constant
        if self.num_train_epochs is not None and self.max_steps is None:
            self.max_steps = -1  # whoever says epochs means them
        defaults = method_defaults(recipe)
        self.by_rows = tuple(
            name for name in _BY_ROWS if getattr(self, name) is None and defaults[name] is None
        )
        defaults |= {name: getattr(USUAL, _BY_ROWS[name]) for name in self.by_rows}
        for name, value in defaults.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        super().__post_init__()

    def for_rows(self, rows: int, kind: TaskType | None, depth: float) -> DistillationConfig:
        """The same with what it leaves to the rows: a copy, where anything is left to them.

        Args:
            rows: training examples.
            kind: the student's task type; None where it, or the number of rows, is not known.
            depth: layers of the student, as a share of its teacher's.
        """
        if not self.by_rows:
            return self
        made = copy.copy(self)
        made.by_rows = ()
        if kind is not None and kind.whole_text:
            step = self.train_batch_size * (self.gradient_accumulation_steps or 1) * self.world_size
            chosen = training_for(rows, step, depth)
            for name in self.by_rows:
                setattr(made, name, getattr(chosen, _BY_ROWS[name]))
        return made

    def _problems(self) -> list[Problem]:
        said = said_twice(self.optimisation, self.optim, self.lr_scheduler_type)
        return combination_problems(self) + said

    @classmethod
    def like(cls, args: TrainingArguments, **own: Any) -> DistillationConfig:
        """All settings of `args`, plain ones too, with limbeck's own as `own` says.

        A method in `own` takes the place of the terms of `args`, and terms that of its method.

        Raises:
            LimbeckError: `own` holds other settings.
        """
        if wrong := [
            unknown("setting of a method", name, OWN_SETTINGS)
            for name in own
            if name not in OWN_SETTINGS
        ]:
            raise LimbeckError(wrong)
        settings = vars(args) if isinstance(args, MethodSettings) else vars(MethodSettings())
        known = {name: settings[name] for name in OWN_SETTINGS}
        # A method takes the place of terms, and terms that of a method.
        if own.get("method") is not None:
            known |= dict.fromkeys(_TERMS)
        elif own.get("objectives") is not None:
            known["method"] = None
        made = object.__new__(cls)
        made.__dict__.update(vars(args) | known | own)
        made._make_plain()
        if problems := combination_problems(made):
            raise LimbeckError(problems)
        if made.optimisation is not None:
            check_optimisation(made.optimisation)
        if made.objectives is None and made.method is None:
            made.method = "kd"
        return made

    def to_dict(self) -> dict[str, Any]:
        """Plain values, which make the same configuration again: `DistillationConfig(**d)`.

        A term that is an object is a text that leads to it as long as it lives.
        """
        found = super().to_dict() | dict.fromkeys(self.by_rows)
        if isinstance(self.method, Recipe):
            found["method"] = self.method.model_dump(mode="json")
        return found | {name: _plain(plain_terms(getattr(self, name))) for name in _OF_TERMS}

    def _make_plain(self) -> None:
        """Settings given as objects, or as JSON, become plain values; a recipe stays one, and so do terms."""
        method: Any = _read(self.method)
        if isinstance(method, Path):
            method = str(method)
        elif isinstance(method, Mapping):
            method = check(dict(method), Recipe, known_tasks=(str(method.get("task")),))
        self.method = method
        for name in _DICTS:
            value = _read(getattr(self, name))
            # Terms that are objects are trained as copies of them, and stay objects here.
            setattr(self, name, value if name in _OF_TERMS else _plain(value))

    def _of_method(self, recipe: Recipe) -> dict[str, Any]:
        """The method's optimiser and schedule, as far as the arguments say no other."""
        own = Optimisation.of(recipe.stages()[-1].recipe)
        found = asdict(own)
        plain = asdict(Optimisation())
        if str(self.optim) != str(DEFAULT_OPTIM):
            found |= {key: plain[key] for key in ("momentum", "nesterov", "bert_adam", "epsilon")}
        if self.lr_scheduler_type is not None:
            found |= {key: plain[key] for key in ("milestones", "decay")}
        return _plain(found)


def _read(value: Any) -> Any:
    """JSON of a command line."""
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Optimisation):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value
