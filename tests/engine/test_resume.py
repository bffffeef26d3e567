"""A run that is killed and started again gives what an unbroken one gives, bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_runs as tiny
from limbeck.data import Collator
from limbeck.engine import DistillationTrainer, training_arguments
from limbeck.engine.callbacks import CheckpointEvery
from limbeck.engine.checkpoints import last_whole
from limbeck.recipe import Recipe

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
    return Recipe.load(method, **given, **changes)


def start(folder: Path, recipe: Recipe, *callbacks) -> DistillationTrainer:
    """What a process does: build everything anew, and continue from what lies in the folder."""
    torch.manual_seed(int.from_bytes(os.urandom(4)))  # a new process starts anywhere
    np.random.seed(torch.randint(2**31, ()).item())
    # The second epoch is the best, so that the last one's weights would be wrong.
    scores = {1: 60.0, 2: 80.0, 3: 70.0}
    trainer = DistillationTrainer(
        tiny.bert(3),
        training_arguments(recipe, folder),
        teacher=tiny.knowing_teacher(4),
        objectives=recipe.objectives,
        curriculum=recipe.curriculum,
        mixup=recipe.mixup,
        group_by_length=recipe.groups_by_length,
        train_dataset=tiny.rows(22),
        eval_dataset=tiny.rows(10),
        data_collator=Collator(tiny.tokenizer()),
        compute_metrics=lambda prediction: {"primary": scores[round(trainer.state.epoch)]},
        callbacks=list(callbacks),
    )
    if recipe.checkpoint_steps:
        trainer.add_callback(CheckpointEvery(recipe.checkpoint_steps))
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


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """setting → outcome of its unbroken run, made once."""
    found: dict[str, dict] = {}

    def run(setting: str) -> dict:
        if setting not in found:
            folder = tmp_path_factory.mktemp("unbroken")
            found[setting] = outcome(start(folder, recipe_of(setting)))
        return found[setting]

    return run


def killed_at(folder: Path, recipe: Recipe, event: str, step: int) -> None:
    with pytest.raises(tiny.KilledError):
        start(folder, recipe, tiny.Kill(event, step))


def test_the_unbroken_run_has_something_to_lose(unbroken):
    run = unbroken("rail")
    assert run["steps"] == 18
    assert run["best"] == 12
    draws = [entry["active_layers"]["rail"] for entry in run["epochs"]]
    assert len({json.dumps(draw) for draw in draws}) > 1
    assert any(name.startswith("objectives.terms.rail.projections") for name in run["weights"])
    losses = [entry["train"]["loss"] for entry in run["epochs"]]
    assert losses == sorted(losses, reverse=True)
    assert all({"loss", "hard", "soft", "rail"} == set(entry["train"]) for entry in run["epochs"])


@pytest.mark.parametrize(
    ("setting", "every", "kills"),
    [
        # Inside the first epoch, and again inside the second, off the checkpoint's step.
        ("rail", 4, [("step_begin", 5), ("step_begin", 11)]),
        ("rail bf16", 4, [("step_begin", 9)]),
        # Two steps an epoch of four and two batches: inside an epoch, and just after its end.
        ("alp accumulating", 1, [("step_begin", 1), ("step_begin", 3)]),
        ("alp accumulating", None, [("step_begin", 2)]),
        # Just after an epoch's end.
        ("rail", None, [("step_begin", 6), ("step_begin", 12)]),
        ("rail bf16", None, [("step_begin", 6)]),
        # Before anything was saved.
        ("rail", None, [("step_begin", 3)]),
        # While the epoch's end is worked off: before, during and after its evaluation.
        ("rail", 6, [("epoch_end", 6), ("evaluate", 12)]),
        ("rail", 5, [("save", 18)]),
        # After the last step, when only the best checkpoint is left.
        ("rail", None, [("train_end", 18)]),
        ("rail bf16", None, [("save", 18)]),
        ("alp accumulating", None, [("train_end", 6)]),
        pytest.param("workers", 4, [("step_begin", 9)], marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_ends_as_an_unbroken_one(tmp_path, unbroken, setting, every, kills):
    recipe = recipe_of(setting, checkpoint_steps=every)
    for event, step in kills:
        killed_at(tmp_path, recipe, event, step)
    assert_same(start(tmp_path, recipe), unbroken(setting))


@pytest.mark.slow
def test_workers_change_nothing(unbroken):
    one, several = unbroken("rail"), unbroken("workers")
    assert one["epochs"] == several["epochs"]


def test_a_finished_run_is_not_trained_again(tmp_path, unbroken):
    recipe = recipe_of("rail")
    killed_at(tmp_path, recipe, "save", 18)
    assert last_whole(tmp_path).name == "checkpoint-18"
    again = start(tmp_path, recipe, tiny.Kill("train_begin", 0), tiny.Kill("step_begin", 12))
    assert_same(again, unbroken("rail"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "trainer_state.json").write_text('{"epoch": 2.0, "best_'),
        lambda folder: (folder / "trainer_state.json").unlink(),
        lambda folder: (folder / "distiller.safetensors").unlink(),
        lambda folder: (folder / "progress.json").unlink(),
        lambda folder: (folder / "optimizer.pt").unlink(),
        lambda folder: (folder / "rng_state.pth").unlink(),
    ],
    ids=["cut state", "no state", "no weights", "no progress", "no optimiser", "no generators"],
)
def test_half_a_checkpoint_is_ignored(tmp_path, damage):
    for step in (6, 12):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        for name in ("distiller.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
            (folder / name).touch()
        for name in ("trainer_state.json", "progress.json"):
            (folder / name).write_text("{}")
    assert last_whole(tmp_path).name == "checkpoint-12"
    damage(tmp_path / "checkpoint-12")
    assert last_whole(tmp_path).name == "checkpoint-6"
    shutil.rmtree(tmp_path / "checkpoint-6")
    assert last_whole(tmp_path) is None


def test_a_run_goes_on_from_the_checkpoint_before_half_a_one(tmp_path, unbroken):
    recipe = recipe_of("rail", checkpoint_steps=4)
    killed_at(tmp_path, recipe, "step_begin", 9)
    newest = last_whole(tmp_path)
    # As a kill leaves it: the last checkpoint's weights are cut, its last file not yet written.
    half = tmp_path / "checkpoint-10"
    shutil.copytree(newest, half)
    (half / "trainer_state.json").unlink()
    with (half / "distiller.safetensors").open("r+b") as stream:
        stream.truncate(100)
    assert last_whole(tmp_path) == newest
    assert_same(start(tmp_path, recipe), unbroken("rail"))


def test_seconds_of_a_broken_epoch_are_kept(tmp_path):
    recipe = recipe_of("rail", checkpoint_steps=4)

    class Slow(tiny.TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 1:
                time.sleep(0.5)

    with pytest.raises(tiny.KilledError):
        start(tmp_path, recipe, Slow(), tiny.Kill("step_begin", 4))
    trainer = start(tmp_path, recipe)
    assert trainer.progress.epochs[0]["seconds"] > 0.5
    assert trainer.progress.run_clock.before > 0.5
    assert trainer.progress.stopwatch.read()["teacher"] < sum(
        entry["seconds"] for entry in trainer.progress.epochs
    )


SCRIPT = """
import sys
from limbeck.recipe import Recipe
from limbeck.run import distill
distill(Recipe.load(sys.argv[1]), out=sys.argv[2])
"""


@pytest.mark.slow
def test_a_run_survives_sigkill(tmp_path):
    from limbeck.run import distill

    teacher = tiny.save(tiny.knowing_teacher(4), tmp_path / "teacher")
    student = tiny.save(tiny.bert(3), tmp_path / "start")
    recipe = Recipe.load(
        "rail-kd-l",
        task="reviews",
        data=str(tiny.write_csv(tmp_path / "reviews.csv", 60)),
        text_columns=["review"],
        label_column="verdict",
        teacher=str(teacher),
        **{"student.init": str(student)},
        epochs=20,
        batch_size=4,
        max_length=24,
        checkpoint_steps=5,
    )
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    out = tmp_path / "killed"
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "recipe.yaml"), str(out)]
    )
    while process.poll() is None and last_whole(out / "checkpoints") is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it finished before it could be killed"
    assert json.loads((out / "record.json").read_text())["status"] == "running"
    resumed = distill(recipe, out=out)
    straight = distill(recipe, out=tmp_path / "straight")
    assert resumed.scores == straight.scores
    assert [e.model_copy(update={"seconds": 0}) for e in resumed.record.epochs] == [
        e.model_copy(update={"seconds": 0}) for e in straight.record.epochs
    ]
    for name in ("student/model.safetensors", "predictions.json"):
        assert (out / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name
