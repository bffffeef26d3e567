"""From a recipe's training settings to the Trainer's arguments. Part of `limbeck.training`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from transformers import (
    EarlyStoppingCallback,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
)
from transformers.integrations import TensorBoardCallback

from limbeck.recipe import Recipe
from limbeck.recipe.recipe import LOSS_KEYS, TRAINING, TRANSFORMS
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.machine import accelerator, share_of_step
from limbeck.tasks import LOWER_IS_BETTER
from limbeck.training.config import OWN_SETTINGS, DistillationConfig
from limbeck.training.method import OBJECTS
from limbeck.training.optimizer import Optimisation


def training_arguments(
    recipe: Recipe, checkpoints: Path, *, select: bool = True, name: str | None = None
) -> DistillationConfig:
    """The configuration for a recipe of one stage; checkpoints go to this folder.

    With `select` every epoch is scored and the best one kept; without, the last weights are. `name`: what
    experiment trackers call the run.
    """
    share = share_of_step(recipe.batch_size, recipe.accumulation)
    assert share is not None  # pre-flight has refused it
    # Specs are taken in Python; the fields' types are what a command line can give.
    method: dict[str, Any] = {key: getattr(recipe, key) for key in LOSS_KEYS}
    method["optimisation"] = Optimisation.of(recipe)
    return DistillationConfig(
        output_dir=str(checkpoints),
        **method,
        group_by_length=recipe.groups_by_length,
        labelled_share=recipe.labelled_share,
        candidates=recipe.candidates,
        compile=recipe.compile,
        compact_metrics=True,
        skip_unused_embeddings=recipe.skip_unused_embeddings,
        num_train_epochs=recipe.epochs,
        max_steps=recipe.max_steps or -1,
        per_device_train_batch_size=share.batch_size,
        per_device_eval_batch_size=max(recipe.batch_size, 64),
        gradient_accumulation_steps=share.accumulation,
        learning_rate=recipe.lr,
        weight_decay=recipe.weight_decay,
        adam_epsilon=recipe.epsilon,
        warmup_steps=recipe.warmup,
        # A rate in steps is `Optimisation`'s.
        lr_scheduler_type="constant" if recipe.lr_schedule == "step" else recipe.lr_schedule,
        max_grad_norm=recipe.max_grad_norm,
        bf16=recipe.precision == "bf16",
        # bf16 on CPU has to be asked for by this name.
        use_cpu=accelerator() is None,
        seed=recipe.seed,
        eval_strategy="epoch" if select else "no",
        save_strategy="epoch",
        logging_strategy="steps",
        logging_steps=recipe.log_steps,
        load_best_model_at_end=select,
        metric_for_best_model=recipe.select_by if select else None,
        greater_is_better=recipe.select_by not in LOWER_IS_BETTER if select else None,
        # One to fall back on, should the newest be damaged.
        save_total_limit=2,
        dataloader_num_workers=recipe.workers,
        disable_tqdm=True,
        # `reporting` makes the callbacks, which need the run's folder.
        report_to=[],
        run_name=name,
    )


def tensorboard(events: Path) -> TensorBoardCallback:
    """Logs everything the Trainer logs, for TensorBoard, in a folder.

    Raises:
        LimbeckError: TensorBoard is not installed.
    """
    if find_spec("tensorboard") is None:
        raise LimbeckError(
            "tensorboard: true, and TensorBoard is not installed",
            "pip install 'limbeck[tensorboard]', or leave the key out",
        )
    callback = TensorBoardCallback()
    # It would take the place from the environment, for every run of this process.
    callback.logging_dir = str(events)
    return callback


# Settings of `TrainingArguments` do what they say, because the Trainer's own code reads them or because what
# replaces it does. The few that would not are refused here. A test searches the installed transformers for
# settings that are read only by code that limbeck replaces.


class Refusal(NamedTuple):
    """`why`: after the setting's name. `fix`: what to do."""

    why: str
    fix: str


_COMPILE = Refusal(
    "it would compile the terms with the models",
    "leave it out and set compile=True of DistillationConfig, which compiles the passes of student and teacher",
)
_WHOLE = Refusal(
    "student and teacher are looked into layer by layer, which needs whole weights in each process",
    "leave it out; torchrun runs copies (DDP)",
)
_GENERATES = Refusal(
    "it belongs to Seq2SeqTrainer, and DistillationTrainer does not read it",
    "leave it out; generate from the student after training",
)
_OF_SEQ2SEQ = {one.name for one in fields(Seq2SeqTrainingArguments)} - {
    one.name for one in fields(TrainingArguments)
}

REFUSED = {
    "label_smoothing_factor": Refusal(
        "the labels' loss is a term of the method, which says what it compares with",
        "leave it out; a soft label smooths as the teacher does: method kd",
    ),
    **dict.fromkeys(("torch_compile", "torch_compile_backend", "torch_compile_mode"), _COMPILE),
    "use_liger_kernel": Refusal(
        "its kernels give a loss without the hidden states and logits that the terms compare",
        "leave it out; attn_implementation of the models makes attention fast",
    ),
    "liger_kernel_config": Refusal("use_liger_kernel is refused", "leave it out"),
    **dict.fromkeys(("fsdp", "deepspeed", "parallelism_config"), _WHOLE),
    **dict.fromkeys(sorted(_OF_SEQ2SEQ), _GENERATES),
    "sortish_sampler": _GENERATES._replace(fix='set train_sampling_strategy="group_by_length"'),
}
"""Refused where they ask for something: values that are not None, False, 0 or empty."""


def setting_problems(args: TrainingArguments) -> list[Problem]:
    """The settings that would not do what they say."""
    problems = [
        Problem(f"args.{name}={value!r}: {refusal.why}", refusal.fix)
        for name, refusal in REFUSED.items()
        if (value := getattr(args, name, None))
    ]
    if args.n_gpu > 1:
        problems.append(
            Problem(
                f"{args.n_gpu} devices in one process: DataParallel copies models in each step, and "
                "copies cannot be looked into",
                "start one process a device, `torchrun --nproc_per_node N script.py`, or show one "
                "device, CUDA_VISIBLE_DEVICES=0",
            )
        )
    return problems


def said_elsewhere(
    given: Mapping[str, Any], first_stage: Mapping[str, Any] | None
) -> list[Problem]:
    """Settings of the configuration among the trainer's keyword arguments, and the reverse."""
    moved = [name for name in given if name in OWN_SETTINGS]
    problems = [
        Problem(f"{name}=: a setting of the configuration", f"args=DistillationConfig({name}=…)")
        for name in moved
    ]
    for key in first_stage or ():
        if key in TRAINING or key in ("objectives", "curriculum", *TRANSFORMS):
            problems.append(
                Problem(
                    f"first_stage.{key}: a setting of the configuration",
                    f'args=DistillationConfig(first_stage={{"{key}": …}})',
                )
            )
        elif key not in OBJECTS:
            problems.append(unknown("key in first_stage", key, OBJECTS))
    return problems


def label_problems(args: TrainingArguments, names: tuple[str, ...]) -> list[Problem]:
    """Label columns that are not those of the student's head, `names`."""
    if args.label_names is None or sorted(args.label_names) == sorted(names):
        return []
    return [
        Problem(
            f"args.label_names={args.label_names}: the student's head has the labels "
            f"{', '.join(names)}",
            "leave label_names out",
        )
    ]


def sharded(trainer: Trainer) -> list[Problem]:
    """What splits weights over processes by the launcher's configuration, not by the arguments."""
    named = {"fsdp": trainer.is_fsdp_enabled, "deepspeed": trainer.is_deepspeed_enabled}
    return [
        Problem(
            f"{name}, from the launcher's configuration: {REFUSED[name].why}", REFUSED[name].fix
        )
        for name, enabled in named.items()
        if enabled
    ]


def keyword_problems(given: Mapping[str, Any], *, staged: bool) -> list[Problem]:
    """Arguments of `Trainer` that would not do what they say.

    Args:
        given: the keyword arguments that go on to the Trainer.
        staged: more is trained than this one student in one stage.
    """
    problems = []
    if given.get("compute_loss_func") is not None:
        problems.append(
            Problem(
                "compute_loss_func: the loss is the weighted sum of the method's terms",
                "leave it out and say the terms: objectives={...}; or override compute_loss",
            )
        )
    optimizer, scheduler = given.get("optimizers") or (None, None)
    if staged and (optimizer is not None or scheduler is not None):
        problems.append(
            Problem(
                "optimizers: the method trains in several parts, each with an optimiser of its own",
                "pass optimizer_cls_and_kwargs=(class, settings), or choose by args.optim",
            )
        )
    return problems


# Numbers among `TrainingArguments` that no training can mean. transformers takes most of them as
# they are: a batch of no rows ends deep in a loader, a rate that is no number in weights that are
# none.


class Range(NamedTuple):
    """From `least` (`above`: not itself) to `most` (`below`: not itself); None may stand for unset."""

    least: float
    most: float = math.inf
    above: bool = False
    below: bool = False

    def holds(self, value: float) -> bool:
        """Whether a number lies in it; none that is not finite does."""
        low = value > self.least if self.above else value >= self.least
        high = value < self.most if self.below else value <= self.most
        return math.isfinite(value) and low and high

    def __str__(self) -> str:
        low = f"{'above' if self.above else 'from'} {self.least:g}"
        if math.isinf(self.most):
            return f"a finite number {low}" if self.above else f"a finite number {low} on"
        return f"a number {low} {'to below' if self.below else 'to'} {self.most:g}"


_COUNT = Range(1)
_SHARE = Range(0, 1, below=True)
_SEED = Range(0, 2**32 - 1)
RANGES = {
    # As a recipe's `lr`, `weight_decay` and `adam_epsilon`.
    "learning_rate": Range(1e-12, 10),
    "weight_decay": Range(0, 10),
    "adam_epsilon": Range(0, 1, above=True),
    "adam_beta1": _SHARE,
    "adam_beta2": _SHARE,
    "max_grad_norm": Range(0),
    "warmup_steps": Range(0),
    "num_train_epochs": Range(0, above=True),
    "max_steps": Range(-1),
    "per_device_train_batch_size": _COUNT,
    "per_device_eval_batch_size": _COUNT,
    "gradient_accumulation_steps": _COUNT,
    "eval_accumulation_steps": _COUNT,
    "eval_delay": Range(0),
    "logging_steps": Range(0, above=True),
    "save_steps": Range(0, above=True),
    "eval_steps": Range(0, above=True),
    "save_total_limit": _COUNT,
    "torch_empty_cache_steps": _COUNT,
    "dataloader_num_workers": Range(0),
    "dataloader_prefetch_factor": _COUNT,
    "neftune_noise_alpha": Range(0),
    "seed": _SEED,
    "data_seed": _SEED,
}
"""What a number may be, where it is given."""


def value_problems(args: TrainingArguments, callbacks: Iterable[Any]) -> list[Problem]:
    """Numbers beyond their ranges, and a patience of no time."""
    problems = []
    for name, range_ in RANGES.items():
        value = getattr(args, name, None)
        if name == "num_train_epochs" and args.max_steps > 0:  # which decides
            continue
        if isinstance(value, int | float) and not range_.holds(value):
            problems.append(Problem(f"args.{name}={value!r} means nothing", f"give {range_}"))
    for callback in callbacks:
        if isinstance(callback, EarlyStoppingCallback) and callback.early_stopping_patience < 1:
            problems.append(
                Problem(
                    f"callbacks: early_stopping_patience={callback.early_stopping_patience} stops at "
                    "the first score",
                    "give 1 or more, or leave the callback out",
                )
            )
    return problems
