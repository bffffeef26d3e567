"""From a recipe's training settings to the Trainer's arguments. Part of `limbeck.training`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers.integrations import TensorBoardCallback

from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import accelerator, share_of_step
from limbeck.tasks import LOWER_IS_BETTER
from limbeck.training.config import DistillationConfig
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
