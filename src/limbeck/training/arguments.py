"""From a recipe's training settings to the Trainer's arguments. Part of `limbeck.training`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from transformers import EarlyStoppingCallback, Trainer, TrainingArguments
from transformers.integrations import TensorBoardCallback

from limbeck.recipe import Recipe
from limbeck.recipe.stages import TRAINING, TRANSFORMS
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
    method: dict[str, Any] = {
        "objectives": dict(recipe.objectives),
        "curriculum": recipe.curriculum,
        "example_weights": recipe.example_weights,
        "mixup": recipe.mixup,
        "input_transform": recipe.input_transform,
        "optimisation": Optimisation.of(recipe),
    }
    return DistillationConfig(
        output_dir=str(checkpoints),
        **method,
        min_confidence=recipe.min_confidence,
        unlabelled_weight=recipe.unlabelled_weight,
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


# What becomes of every setting of `TrainingArguments`: it does what it says, or is refused by its
# name. A test holds these tables against the installed transformers, so that a setting that comes
# with a new release is looked at before it is accepted.


_TRAINERS = """
    output_dir per_device_train_batch_size num_train_epochs max_steps learning_rate
    lr_scheduler_type lr_scheduler_kwargs warmup_steps optim optim_args weight_decay adam_beta1
    adam_beta2 adam_epsilon optim_target_modules gradient_accumulation_steps max_grad_norm bf16 fp16
    bf16_full_eval fp16_full_eval tf32 use_cache torch_empty_cache_steps auto_find_batch_size
    logging_strategy logging_steps logging_first_step log_on_each_node log_level log_level_replica
    disable_tqdm report_to run_name project trackio_space_id trackio_bucket_id
    trackio_static_space_id eval_strategy eval_steps eval_delay per_device_eval_batch_size
    prediction_loss_only eval_on_start eval_do_concat_batches eval_use_gather_object
    eval_accumulation_steps batch_eval_metrics save_only_model save_strategy save_steps
    save_on_each_node save_total_limit enable_jit_checkpoint load_best_model_at_end
    metric_for_best_model greater_is_better ignore_data_skip restore_callback_states_from_checkpoint
    full_determinism seed use_cpu accelerator_config dataloader_drop_last dataloader_num_workers
    dataloader_pin_memory dataloader_persistent_workers dataloader_prefetch_factor
    dataloader_multiprocessing_context dataloader_in_order ddp_find_unused_parameters
    ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ddp_backend ddp_timeout debug
    skip_memory_metrics local_rank hub_token hub_private_repo hub_model_id hub_strategy
    hub_always_push hub_revision
"""
TRAINERS = frozenset(_TRAINERS.split())
"""Done by the Trainer's own code, as it says."""

OWN = {
    "activation_checkpointing": "in the student",
    "activation_checkpointing_kwargs": "in the student",
    "gradient_checkpointing": "in the student",
    "gradient_checkpointing_kwargs": "in the student",
    "neftune_noise_alpha": "on the student's word embeddings",
    "average_tokens_across_devices": "examples: each counts alike, on whatever device it is",
    "train_sampling_strategy": "the order is a function of seed and epoch",
    "length_column_name": "where batches are of similar length",
    "data_seed": "of the order",
    "remove_unused_columns": "what neither student nor teacher names",
    "include_num_input_tokens_seen": "of the student's input",
    "include_for_metrics": "the student's input",
    "label_names": "in the order given, if they are those of the student's head",
    "logging_nan_inf_filter": "always off: a loss that is no number ends the run",
    "push_to_hub": "the student, as `save_model` writes it",
}
"""Done by limbeck, and on what."""

METHOD = frozenset(OWN_SETTINGS)
"""Limbeck's own, of `DistillationConfig`."""

SCRIPTS = frozenset(["do_train", "do_eval", "do_predict", "resume_from_checkpoint"])
"""Read by scripts: no Trainer reads them."""


class Refusal(NamedTuple):
    """`unused`: values that ask for nothing. `why`: after the setting's name. `fix`: what to do."""

    unused: tuple[Any, ...]
    why: str
    fix: str


_COMPILE = Refusal(
    (None, False),
    "it would compile the terms with the models",
    "leave it out and set compile=True of DistillationConfig, which compiles the passes of student and teacher",
)
_WHOLE = (
    "student and teacher are looked into layer by layer, which needs whole weights in each process"
)
_GENERATES = Refusal(
    (None, False),
    "it belongs to Seq2SeqTrainer, and DistillationTrainer does not read it",
    "leave it out; generate from the student after training",
)

REFUSED = {
    "label_smoothing_factor": Refusal(
        (0, 0.0, None),
        "the labels' loss is a term of the method, which says what it compares with",
        "leave it out; a soft label smooths as the teacher does: method kd",
    ),
    "torch_compile": _COMPILE,
    "torch_compile_backend": _COMPILE,
    "torch_compile_mode": _COMPILE,
    "use_liger_kernel": Refusal(
        (False, None),
        "its kernels give a loss without the hidden states and logits that the terms compare",
        "leave it out; attn_implementation of the models makes attention fast",
    ),
    "liger_kernel_config": Refusal((None,), "use_liger_kernel is refused", "leave it out"),
    "fsdp": Refusal((None, False, "", ()), _WHOLE, "leave it out; torchrun runs copies (DDP)"),
    "deepspeed": Refusal((None, False, ""), _WHOLE, "leave it out; torchrun runs copies (DDP)"),
    "parallelism_config": Refusal((None,), _WHOLE, "leave it out; torchrun runs copies (DDP)"),
    "sortish_sampler": Refusal(
        (None, False), _GENERATES.why, 'set train_sampling_strategy="group_by_length"'
    ),
    "predict_with_generate": _GENERATES,
    "generation_max_length": _GENERATES,
    "generation_num_beams": _GENERATES,
    "generation_config": _GENERATES,
}
"""Refused where they ask for something."""

READ_WITH = {"fsdp_config": "fsdp"}
"""Settings without a meaning of their own: refused with the one they belong to."""


def setting_problems(args: TrainingArguments) -> list[Problem]:
    """The settings that would not do what they say."""
    problems = [
        Problem(f"args.{name}={value!r}: {refusal.why}", refusal.fix)
        for name, refusal in REFUSED.items()
        if (value := _given(args, name)) not in refusal.unused
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
    moved = [name for name in given if name in METHOD]
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


def _given(args: TrainingArguments, name: str) -> Any:
    value = getattr(args, name, None)
    return tuple(value) if isinstance(value, list) else value


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
