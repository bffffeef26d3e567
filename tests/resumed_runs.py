"""Small runs that are stopped and started again, and what has to be the same afterwards."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_runs as tiny
from limbeck.data import Collator
from limbeck.recipe import Recipe
from limbeck.training import DistillationTrainer, training_arguments
from limbeck.training.callbacks import CheckpointEvery
from limbeck.training.checkpoints import last_whole

EPOCHS = 3
# 22 rows in batches of 4: 6 steps an epoch, the last batch smaller; accumulating by 4: 2 steps.
SETTINGS = {
    "rail": {"method": "rail-kd-l"},
    "rail bf16": {"method": "rail-kd-l", "precision": "bf16"},
    "alp accumulating": {"method": "alp-kd", "accumulation": 4, "group_by_length": False},
    "workers": {"method": "rail-kd-l", "workers": 2},
}


def recipe_of(setting: str, **changes) -> Recipe:
    given = {
        "epochs": EPOCHS,
        "batch_size": 4,
        "lr": 1e-2,
        "log_steps": 2,
        "seed": 7,
        "objectives.attention.project.when": "always",
    } | SETTINGS[setting]
    method = given.pop("method")
    if method != "alp-kd":
        del given["objectives.attention.project.when"]
    return Recipe.load(method, **(given | changes))


def start(folder: Path, recipe: Recipe, *callbacks, resume_from=None) -> DistillationTrainer:
    """What a process does: build everything again, and continue from what lies in the folder.

    `resume_from` is handed to the Trainer's own `train` instead.
    """
    torch.manual_seed(int.from_bytes(os.urandom(4)))  # a new process starts anywhere
    np.random.seed(torch.randint(2**31, ()).item())
    # The second epoch is the best, so that the last one's weights would be wrong.
    scores = {1: 60.0, 2: 80.0, 3: 70.0}
    trainer = DistillationTrainer(
        tiny.bert(3),
        tiny.knowing_teacher(4),
        training_arguments(recipe, folder),
        train_dataset=tiny.rows(22),
        eval_dataset=tiny.rows(10),
        data_collator=Collator(tiny.tokenizer()),
        compute_metrics=lambda prediction: {"primary": scores[round(trainer.state.epoch)]},
        callbacks=list(callbacks),
    )
    if recipe.checkpoint_steps:
        trainer.add_callback(CheckpointEvery(recipe.checkpoint_steps))
    if resume_from is not None:
        trainer.train(resume_from_checkpoint=resume_from)
    else:
        trainer.start_or_continue(last_whole(folder))
    return trainer


def outcome(trainer: DistillationTrainer) -> dict:
    """Everything of a run that time does not change."""
    timeless = [
        {key: value for key, value in entry.items() if key != "seconds"}
        for entry in trainer.progress.epochs
    ]
    logged = [
        {k: v for k, v in entry.items() if k.startswith(("term/", "loss", "eval_loss", "grad"))}
        for entry in trainer.state.log_history
        if "train_loss" not in entry  # the Trainer's own summary of the last start alone
    ]
    weights = {name: value.clone() for name, value in trainer.distiller.state_dict().items()}
    return {
        "epochs": timeless,
        "logged": logged,
        "best": trainer.state.best_global_step,
        "steps": trainer.state.global_step,
        "weights": weights,
    }


def assert_same(resumed: DistillationTrainer, unbroken: dict) -> None:
    found = outcome(resumed)
    weights, expected = found.pop("weights"), dict(unbroken)
    expected_weights = expected.pop("weights")
    assert found == expected
    assert weights.keys() == expected_weights.keys()
    for name, value in expected_weights.items():
        assert torch.equal(weights[name], value), name


def killed_at(folder: Path, recipe: Recipe, event: str, step: int) -> None:
    with pytest.raises(tiny.KilledError):
        start(folder, recipe, tiny.Kill(event, step))
