"""`DistillationConfig`: the arguments of a `DistillationTrainer`. Part of `limbeck.training`."""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel
from transformers import TrainingArguments
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames

from limbeck.objectives.registration import plain_terms
from limbeck.recipe import Recipe, quick, validation
from limbeck.recipe.recipe import LOSS_KEYS
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems, unknown
from limbeck.tasks import TaskType
from limbeck.training.method import OBJECTS, method_defaults, of_kind, own_terms
from limbeck.training.optimizer import Optimisation

# The settings that limbeck reads in addition to the Trainer's own arguments.


BESIDE = tuple(key for key in LOSS_KEYS if key != "objectives")
"""Settings of terms, which a method's recipe may contain."""


_DICTS = [
    *("objectives", "curriculum", "example_weights", "mixup", "input_transform", "first_stage"),
    "optimisation",
]
_OF_TERMS = ("objectives", "first_stage")
_BY_ROWS = {"num_train_epochs": "epochs", "learning_rate": "lr"}
_TERMS = ("method", "objectives", *BESIDE, "first_stage")
CACHES = ("off", "auto", "memory", "disk")
DEFAULT_OPTIM: Any = next(one.default for one in fields(TrainingArguments) if one.name == "optim")


def said(default: Any, meaning: str) -> Any:
    """A setting with its default and its meaning, which `--help` shows."""
    return field(default=default, metadata={"help": meaning})


@dataclass
class DistillationConfig(TrainingArguments):
    """`TrainingArguments` with a method: what `DistillationTrainer` takes as `args`.

    Training settings that are left out are filled in from the method: epochs or steps,
    learning rate, its schedule and warm-up, batch size, accumulation, weight decay, epsilon, clipping, seed
    and optimiser. Epochs and learning rate that the method leaves open follow the rows and the student: a
    trainer has them (`trainer.args`), and until then the usual ones are set here. Everything can be written to
    JSON and read back (`to_dict`); settings of terms given as objects become plain values. `HfArgumentParser`
    reads it from a command line.

    Example:
        ```python
        args = limbeck.DistillationConfig("out", method="rail-kd-l", num_train_epochs=3)
        ```

    Raises:
        LimbeckError: unknown names, values and combinations, all together.
    """

    # Arguments that a trainer chooses by its rows; without annotation it is no setting.
    by_rows = tuple[str, ...]()
    # Processes among which a forward pass is divided; 0: all.
    sharing = 0

    _VALID_DICT_FIELDS = [*TrainingArguments._VALID_DICT_FIELDS, "method", *_DICTS]  # noqa: RUF012

    method: str | None = said(
        None,
        "A shipped method's name, a recipe file, or (in Python) a Recipe; kd if neither it nor objectives are given.",
    )
    objectives: dict[str, Any] | str | None = said(
        None,
        "The terms themselves by name, instead of a method: settings as in a recipe, or (in Python) limbeck.Objective.",
    )
    curriculum: dict[str, Any] | str | None = said(None, "With objectives: when each layer learns.")
    min_confidence: float | None = said(
        None,
        "With objectives: examples of whose class the teacher's probability is lower do not count in the terms "
        "that learn from its logits.",
    )
    unlabelled_weight: float | None = said(
        None,
        "With objectives: how much an example without a label counts in those terms, next to one with a label; 1 "
        "if left out.",
    )
    example_weights: dict[str, Any] | str | None = said(
        None,
        "With objectives: how much each example counts in those terms, by its name (use) and settings: "
        "confidence, llkd.",
    )
    mixup: dict[str, Any] | str | None = said(
        None, "With objectives: mix the inputs of both models."
    )
    input_transform: dict[str, Any] | str | None = said(
        None, "With objectives: another input transform, by its name (use) and settings."
    )
    first_stage: dict[str, Any] | str | None = said(
        None,
        "Changes to the method's first stage, by its keys in a recipe: epochs, lr, batch_size, objectives.",
    )
    optimisation: dict[str, Any] | str | None = said(
        None,
        "Settings beyond the Trainer's own arguments: momentum and nesterov (SGD), milestones and decay (a rate "
        "that falls in steps), bert_adam and epsilon; default: the method's own.",
    )
    cache_teacher_outputs: Literal["off", "auto", "memory", "disk"] = said(
        "off",
        "Run the teacher once on each training example: memory (logits and pooled states), disk (all outputs that the "
        "terms use), auto (disk, if possible and faster).",
    )
    attn_implementation: str | None = said(
        None,
        "Attention implementation of student and teachers: eager, sdpa, …; as loaded if left out.",
    )
    compile: bool = said(
        False, "Run the training passes of student and teacher as compiled graphs."
    )
    packing: bool = said(
        False,
        "Run the training passes of student and teacher on batches without padding: the texts of a batch one after "
        "the other in one row. Language models only.",
    )
    skip_unused_embeddings: bool = said(
        True,
        "Leave the embeddings of tokens that no training row holds out of every step, where a first batch shows "
        "that outputs and gradients stay the same.",
    )
    group_by_length: bool | None = said(
        None,
        "Batch examples of similar length. If left out as in the method's recipe: in every stage that neither "
        "mixes its inputs nor pads them to a fixed width, where the rows have an input_ids column.",
    )
    labelled_share: float | None = said(
        None,
        "Share of labeled examples in each batch, if others are unlabeled; an epoch is then one pass over the "
        "unlabeled ones. Default: no fixed share.",
    )
    candidates: int | None = said(
        None,
        "Task types pair-score and embedding: candidates of a query in an epoch at most, one of the best grade "
        "and others that are sampled again every epoch; all if left out.",
    )
    compact_metrics: bool = said(
        False,
        "Pass compute_metrics and predict only the outputs that the scores need, instead of the logits, which can be "
        "as large as a vocabulary.",
    )

    # The Trainer's arguments that a method sets: None, which the Trainer's own types do not have, until
    # `__post_init__` puts the method's in. mypy takes each for another type than the base class's.
    num_train_epochs: float | None = said(None, "Passes over the training rows.")  # type: ignore[assignment]
    max_steps: int | None = said(None, "Steps at most, overriding the epochs.")  # type: ignore[assignment]
    learning_rate: float | None = said(None, "Peak learning rate.")  # type: ignore[assignment]
    per_device_train_batch_size: int | None = said(None, "Batch size in training.")  # type: ignore[assignment]
    gradient_accumulation_steps: int | None = said(None, "Batches of one step.")  # type: ignore[assignment]
    lr_scheduler_type: SchedulerType | str | None = said(None, "Course of the rate.")  # type: ignore[assignment]
    warmup_steps: float | None = said(None, "Steps, or (below 1) share, of rising rate.")  # type: ignore[assignment]
    weight_decay: float | None = said(None, "Weight decay.")  # type: ignore[assignment]
    adam_epsilon: float | None = said(None, "Epsilon of AdamW.")  # type: ignore[assignment]
    max_grad_norm: float | None = said(None, "Gradients are clipped to this norm.")  # type: ignore[assignment]
    seed: int | None = said(None, "Seed of initialisation, order, dropout and draws.")  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self._make_plain()
        raise_problems([*combination_problems(self), *said_twice(self)])
        if self.objectives is None and self.method is None:
            self.method = "kd"
        recipe = self.recipe()
        if self.optimisation is None:
            self.optimisation = self._of_method(recipe)
        elif self.how_to_optimise().milestones and self.lr_scheduler_type is None:
            self.lr_scheduler_type = "constant"  # what falls in steps is else constant
        if self.num_train_epochs is not None and self.max_steps is None:
            self.max_steps = -1  # setting epochs explicitly overrides steps
        defaults = method_defaults(recipe)
        self.by_rows = tuple(
            name for name in _BY_ROWS if getattr(self, name) is None and defaults[name] is None
        )
        defaults |= {name: getattr(quick.USUAL, _BY_ROWS[name]) for name in self.by_rows}
        for name, value in defaults.items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        super().__post_init__()  # type: ignore[no-untyped-call]

    def recipe(self, kind: TaskType | None = None) -> Recipe:
        """The method, or the terms, as a checked recipe; the settings of `first_stage` are not in it.

        Args:
            kind: of the student, whose terms it has; None where it is not known yet.

        Raises:
            LimbeckError: every mistake in it, together.
        """
        beside = {key: value for key in BESIDE if (value := getattr(self, key)) is not None}
        terms, method = cast(Any, self.objectives), cast(Any, self.method or "kd")
        if terms is not None:
            found = own_terms(terms, beside)
        elif beside:
            raise LimbeckError(
                f"{' and '.join(beside)}: read with objectives= only, and a method has its own",
                'leave it out, or change the method: Recipe.load(NAME, **{"mixup.alpha": 1})',
            )
        else:
            found = method if isinstance(method, Recipe) else Recipe.load(method)
        return found if kind is None else of_kind(found, kind)

    def how_to_optimise(self) -> Optimisation:
        """The optimiser and schedule where the Trainer's own arguments do not reach.

        Raises:
            LimbeckError: unknown keys, and numbers that mean nothing.
        """
        given: Any = self.optimisation or {}
        choices = [one.name for one in fields(Optimisation)]
        if wrong := [
            unknown("key in optimisation", one, choices) for one in given if one not in choices
        ]:
            raise LimbeckError(wrong)
        tuples = {"milestones": tuple(given["milestones"])} if "milestones" in given else {}
        return Optimisation(**{**given, **tuples})

    def for_rows(self, rows: int, kind: TaskType | None, depth: float) -> "DistillationConfig":
        """Fill in the values that depend on the rows; returns a copy if there are any.

        Args:
            rows: training examples.
            kind: the student's task type; None where it, or the number of rows, is not known.
            depth: layers of the student, as a share of its teacher's.
        """
        if not self.by_rows:
            return self
        made = copy.copy(self)
        made.by_rows = ()
        if kind is not None and not kind.language_model:
            step = self.train_batch_size * (self.gradient_accumulation_steps or 1) * self.world_size
            chosen = quick.training_for(rows, step, depth)
            for name in self.by_rows:
                setattr(made, name, getattr(chosen, _BY_ROWS[name]))
        return made

    @classmethod
    def like(cls, args: TrainingArguments, **own: Any) -> "DistillationConfig":
        """All settings of `args`, also of plain ones (which train method kd), with limbeck's own from `own`.

        A method or terms in `own` override those in `args`.

        Raises:
            LimbeckError: `own` holds other settings.
        """
        if wrong := [
            unknown("setting of a method", name, OWN_SETTINGS)
            for name in own
            if name not in OWN_SETTINGS
        ]:
            raise LimbeckError(wrong)
        known = vars(args)
        if not isinstance(args, DistillationConfig):
            defaults = {one.name: one.default for one in fields(cls) if one.name in OWN_SETTINGS}
            # `train_sampling_strategy` determines their order of examples.
            known = defaults | known | {"method": "kd", "group_by_length": False}
        if own.get("method") is not None or own.get("objectives") is not None:
            known = known | dict.fromkeys(_TERMS)
        made = object.__new__(cls)
        made.__dict__.update(known | own)
        made._make_plain()
        raise_problems(combination_problems(made))
        made.how_to_optimise()
        if made.objectives is None and made.method is None:
            made.method = "kd"
        return made

    def to_dict(self) -> dict[str, Any]:
        """Plain values, which make the same configuration again: `DistillationConfig(**d)`.

        A term that is an object is a text that leads to it as long as it lives.
        """
        found: dict[str, Any] = super().to_dict()  # type: ignore[no-untyped-call]
        found |= dict.fromkeys(self.by_rows)
        if isinstance(self.method, Recipe):
            found["method"] = self.method.model_dump(mode="json")
        return found | {name: _plain(plain_terms(getattr(self, name))) for name in _OF_TERMS}

    def _make_plain(self) -> None:
        """Settings given as objects, or as JSON, become plain values; a recipe stays one, and so do terms."""
        method: Any = _read(self.method)
        if isinstance(method, Path):
            method = str(method)
        elif isinstance(method, Mapping):
            method = validation.check(dict(method), Recipe, known_tasks=(str(method.get("task")),))
        self.method = method
        for name in _DICTS:
            value = _read(getattr(self, name))
            # Terms that are objects are trained as copies of them, and stay objects here.
            setattr(self, name, value if name in _OF_TERMS else _plain(value))

    def _of_method(self, recipe: Recipe) -> dict[str, Any]:
        """The method's optimiser and schedule, unless the arguments set others."""
        own = Optimisation.of(recipe.stages()[-1].recipe)
        found = asdict(own)
        plain = asdict(Optimisation())
        if str(self.optim) != str(DEFAULT_OPTIM):
            found |= {key: plain[key] for key in ("momentum", "nesterov", "bert_adam", "epsilon")}
        if self.lr_scheduler_type is not None:
            found |= {key: plain[key] for key in ("milestones", "decay")}
        result: dict[str, Any] = _plain(found)
        return result


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


OWN_SETTINGS = tuple(
    one.name
    for one in fields(DistillationConfig)
    if one.name not in {known.name for known in fields(TrainingArguments)}
)
"""The names of limbeck's own settings."""


@problem_list
def combination_problems(config: DistillationConfig) -> Iterator[Problem]:
    """Settings that do not go together, by their names."""
    if config.method is not None and config.objectives is not None:
        yield Problem(
            "method, objectives: the terms are a method's or your own",
            "leave one of them out (method=None)",
        )
    if config.cache_teacher_outputs not in CACHES:
        yield unknown("cache_teacher_outputs", config.cache_teacher_outputs, CACHES)
    strategy = getattr(config, "train_sampling_strategy", "random")
    if config.group_by_length and strategy not in ("random", "group_by_length"):
        yield Problem(
            f"group_by_length, train_sampling_strategy={strategy}: batches have one order",
            "leave one of them out",
        )
    first: Any = config.first_stage or {}
    for key in OBJECTS if isinstance(first, Mapping) else ():
        if key in first:
            yield Problem(
                f"first_stage.{key}: an object, and a configuration holds settings",
                f'give it to the trainer: DistillationTrainer(…, first_stage={{"{key}": …}})',
            )


def said_twice(config: DistillationConfig) -> list[Problem]:
    """Raise an error if two settings each name an optimiser, or a schedule."""
    given: Any = config.optimisation or {}
    course = getattr(config.lr_scheduler_type, "value", config.lr_scheduler_type)
    own = [key for key in ("momentum", "bert_adam") if given.get(key) not in (None, False)]
    said = []
    if own and OptimizerNames(config.optim) != OptimizerNames(DEFAULT_OPTIM):
        said.append(f"{own[0]}, optim={config.optim}: a step is made by one optimiser")
    if given.get("milestones") and course not in (None, "constant"):
        said.append(f"milestones, lr_scheduler_type={course}: the rate has one course")
    return [Problem(f"optimisation.{one}", "leave one of them out") for one in said]
