"""From a recipe's training settings to the Trainer's arguments. Part of `limbeck.training`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, ValidationError, create_model
from transformers import (
    EarlyStoppingCallback,
    PreTrainedModel,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
)
from transformers.utils import is_liger_kernel_available

from limbeck.activations.compat import apply_liger_kernel
from limbeck.recipe import Recipe
from limbeck.recipe.recipe import TRAINING, TRANSFORMS
from limbeck.support.errors import LimbeckError, Problem, problem_list, unknown
from limbeck.support.machine import accelerator, share_of_step
from limbeck.tasks import LOWER_IS_BETTER
from limbeck.training.config import OWN_SETTINGS, DistillationConfig
from limbeck.training.method import OBJECTS

# Its name before transformers 5.24, deprecated since.
_CHECKPOINTING = "activation_checkpointing"
if not hasattr(TrainingArguments, _CHECKPOINTING):
    _CHECKPOINTING = "gradient_checkpointing"


def training_arguments(
    recipe: Recipe,
    checkpoints: Path,
    *,
    select: bool = True,
    name: str | None = None,
    scored_at_once: int = 64,
) -> DistillationConfig:
    """The configuration for a recipe of one stage; checkpoints go to this folder.

    With `select` every epoch is scored and the best one kept; without, the last weights are. `name`: what
    experiment trackers call the run. `scored_at_once`: fewest examples of a scored batch.
    """
    share = share_of_step(recipe.batch_size, recipe.accumulation)
    assert share is not None  # pre-flight has refused it
    # A command line gives a method by its name; who teaches is formed already.
    method: Any = recipe.model_copy(update={"team": None, "teachers": None})
    checkpointing: Any = {_CHECKPOINTING: recipe.activation_checkpointing}
    config = DistillationConfig(
        output_dir=str(checkpoints),
        method=method,
        group_by_length=recipe.groups_by_length,
        labelled_share=recipe.labelled_share,
        candidates=recipe.candidates,
        compile=recipe.compile,
        packing=recipe.packing,
        compact_metrics=True,
        skip_unused_embeddings=recipe.skip_unused_embeddings,
        per_device_train_batch_size=share.batch_size,
        per_device_eval_batch_size=max(recipe.batch_size, scored_at_once),
        gradient_accumulation_steps=share.accumulation,
        bf16=recipe.precision == "bf16",
        **checkpointing,
        # bf16 on CPU must be requested under this name.
        use_cpu=accelerator() is None,
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
    config.sharing = share.sharing
    return config


# Settings of `TrainingArguments` take effect, because either the Trainer's own code reads them or the code that
# replaces it does. The few exceptions raise an error here. A test searches the installed transformers for
# settings that are read only by code that limbeck replaces.


_COMPILE = (
    "it would compile the terms with the models",
    "leave it out and set compile=True of DistillationConfig, which compiles the passes of student and teacher",
)
_WHOLE = (
    "limbeck reads student and teacher layer by layer, which needs all weights in each process",
    "leave it out; torchrun runs copies (DDP)",
)
_GENERATES = (
    "it belongs to Seq2SeqTrainer, and DistillationTrainer does not read it",
    "leave it out; generate from the student after training",
)
_OF_SEQ2SEQ = {one.name for one in fields(Seq2SeqTrainingArguments)} - {
    one.name for one in fields(TrainingArguments)
}

REFUSED = {
    "label_smoothing_factor": (
        "the labels' loss is a term of the method, which defines its target",
        "leave it out; a soft label smooths as the teacher does: method kd",
    ),
    **dict.fromkeys(("torch_compile", "torch_compile_backend", "torch_compile_mode"), _COMPILE),
    "auto_find_batch_size": (
        "a smaller batch would train the parts of the method again",
        "leave it out; halve per_device_train_batch_size and double gradient_accumulation_steps",
    ),
    "label_names": ("the student's head defines its labels", "leave it out"),
    **dict.fromkeys(("fsdp", "deepspeed", "parallelism_config"), _WHOLE),
    **dict.fromkeys(sorted(_OF_SEQ2SEQ), _GENERATES),
    "sortish_sampler": (_GENERATES[0], 'set train_sampling_strategy="group_by_length"'),
}
"""Settings that raise an error if set (not None, False, 0 or empty): the reason, and the fix."""


LIGER_LOSSES = {
    "fused_linear_cross_entropy": "it makes no logits, which the terms compare",
    "cross_entropy": "it replaces torch's own in the process",
}
"""Liger's losses, which are never used: the reason. Limbeck computes losses over a vocabulary in pieces."""


def with_liger_kernels(student: PreTrainedModel, args: TrainingArguments) -> None:
    """Give the student Liger's norms, rotary embeddings and MLPs, as transformers' own switch does for a model.

    Raises:
        LimbeckError: no GPU, liger-kernel is not installed, or it has no kernels for this model.
    """
    setting, config = "args.use_liger_kernel=True", args.liger_kernel_config or {}
    if accelerator() is None:
        raise LimbeckError(f"{setting}: its Triton kernels need a GPU", "leave it out on CPU")
    if not is_liger_kernel_available():
        raise LimbeckError(f"{setting}: it is not installed", "pip install liger-kernel")
    apply_liger_kernel(student, {**config, **dict.fromkeys(LIGER_LOSSES, False)})
    if not any("forward" in vars(module) for module in student.modules()):
        kind = student.config.model_type
        raise LimbeckError(f"{setting}: it has no kernels for {kind}", "leave it out")


@problem_list
def setting_problems(args: TrainingArguments) -> Iterator[Problem]:
    """The settings that would have no effect."""
    yield from (
        Problem(f"args.{name}={value!r}: {why}", fix)
        for name, (why, fix) in REFUSED.items()
        if (value := getattr(args, name, None))
    )
    config = args.liger_kernel_config or {}
    yield from (
        Problem(f"args.liger_kernel_config={config!r}: {name}: {why}", f"leave {name} out")
        for name, why in LIGER_LOSSES.items()
        if config.get(name)
    )
    if args.n_gpu > 1:
        yield Problem(
            f"{args.n_gpu} devices in one process: DataParallel copies models in each step, and "
            "copies cannot be looked into",
            "start one process a device, `torchrun --nproc_per_node N script.py`, or show one "
            "device, CUDA_VISIBLE_DEVICES=0",
        )


@problem_list
def said_elsewhere(
    given: Mapping[str, Any], first_stage: Mapping[str, Any] | None
) -> Iterator[Problem]:
    """Settings of the configuration among the trainer's keyword arguments, and the reverse."""
    moved = {f"{name}=": f"{name}=…" for name in given if name in OWN_SETTINGS}
    settings = (*TRAINING, "objectives", "curriculum", *TRANSFORMS)
    first = [key for key in first_stage or () if key not in OBJECTS]
    moved |= {
        f"first_stage.{key}": f'first_stage={{"{key}": …}}' for key in first if key in settings
    }
    yield from (unknown("key in first_stage", key, OBJECTS) for key in first if key not in settings)
    yield from (
        Problem(f"{name}: a setting of the configuration", f"args=DistillationConfig({how})")
        for name, how in moved.items()
    )


def sharded(trainer: Trainer) -> list[Problem]:
    """What splits weights over processes by the launcher's configuration, not by the arguments."""
    named = {"fsdp": trainer.is_fsdp_enabled, "deepspeed": trainer.is_deepspeed_enabled}
    return [
        Problem(f"{name}, from the launcher's configuration: {REFUSED[name][0]}", REFUSED[name][1])
        for name, enabled in named.items()
        if enabled
    ]


@problem_list
def keyword_problems(given: Mapping[str, Any], *, staged: bool) -> Iterator[Problem]:
    """Raise an error for arguments of `Trainer` that would have no effect.

    Args:
        given: the keyword arguments that are passed on to the Trainer.
        staged: more is trained than this one student in one stage.
    """
    if given.get("compute_loss_func") is not None:
        yield Problem(
            "compute_loss_func: the loss is the weighted sum of the method's terms",
            "leave it out and set the terms: objectives={...}; or override compute_loss",
        )
    if staged and any(one is not None for one in given.get("optimizers") or ()):
        yield Problem(
            "optimizers: the method trains in several parts, each with an optimiser of its own",
            "pass optimizer_cls_and_kwargs=(class, settings), or choose by args.optim",
        )


# Numbers among `TrainingArguments` that no training can mean. transformers takes most of them as
# they are: a batch of no rows ends deep in a loader, a rate that is no number in weights that are
# none.

_RANGES: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
    # As a recipe's `lr`, `weight_decay` and `adam_epsilon`.
    ({"ge": 1e-12, "le": 10}, ("learning_rate",)),
    ({"ge": 0, "le": 10}, ("weight_decay",)),
    ({"gt": 0, "le": 1}, ("adam_epsilon",)),
    ({"ge": 0, "lt": 1}, ("adam_beta1", "adam_beta2")),
    ({"ge": 0, "le": 2**32 - 1}, ("seed", "data_seed")),
    ({"ge": -1}, ("max_steps",)),
    ({"gt": 0}, ("num_train_epochs", "logging_steps", "save_steps", "eval_steps")),
    ({"ge": 0}, ("max_grad_norm", "warmup_steps", "eval_delay", "neftune_noise_alpha")),
    ({"ge": 0}, ("dataloader_num_workers",)),
    ({"ge": 1}, ("per_device_train_batch_size", "per_device_eval_batch_size")),
    ({"ge": 1}, ("gradient_accumulation_steps", "eval_accumulation_steps", "save_total_limit")),
    ({"ge": 1}, ("torch_empty_cache_steps", "dataloader_prefetch_factor")),
)
_FIELDS: Any = {
    name: (float | None, Field(None, **bounds)) for bounds, names in _RANGES for name in names
}
_Numbers = create_model("_Numbers", __config__=ConfigDict(allow_inf_nan=False), **_FIELDS)


@problem_list
def value_problems(args: TrainingArguments, callbacks: Iterable[Any]) -> Iterator[Problem]:
    """Numbers beyond their ranges, and a patience of no time."""
    given = {name: getattr(args, name, None) for name in _FIELDS}
    given = {name: value for name, value in given.items() if isinstance(value, int | float)}
    if args.max_steps > 0:  # which decides
        given.pop("num_train_epochs", None)
    try:
        _Numbers.model_validate(given)
    except ValidationError as error:
        for one in error.errors():
            name, fix = one["loc"][0], one["msg"].replace("Input should be", "a number")
            yield Problem(f"args.{name}={one['input']!r} means nothing", f"give {fix}")
    for callback in callbacks:
        if isinstance(callback, EarlyStoppingCallback) and callback.early_stopping_patience < 1:
            yield Problem(
                f"callbacks: early_stopping_patience={callback.early_stopping_patience} stops at the first score",
                "give 1 or more, or leave the callback out",
            )
