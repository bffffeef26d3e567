"""A run that is killed and started again gives what an unbroken one gives, bit for bit."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest

import tiny_runs as tiny
from limbeck.recipe import Recipe
from limbeck.training.checkpoints import last_whole, seal
from resumed_runs import assert_same, killed_at, outcome, recipe_of, start


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
        pytest.param("rail bf16", 4, [("step_begin", 9)], marks=pytest.mark.slow),
        # Two steps an epoch of four and two batches: inside an epoch, and just after its end.
        pytest.param(
            *("alp accumulating", 1, [("step_begin", 1), ("step_begin", 3)]), marks=pytest.mark.slow
        ),
        pytest.param("alp accumulating", None, [("step_begin", 2)], marks=pytest.mark.slow),
        # Just after an epoch's end.
        pytest.param("rail", None, [("step_begin", 6), ("step_begin", 12)], marks=pytest.mark.slow),
        pytest.param("rail bf16", None, [("step_begin", 6)], marks=pytest.mark.slow),
        # Before anything was saved.
        pytest.param("rail", None, [("step_begin", 3)], marks=pytest.mark.slow),
        # While the epoch's end is worked off: before, during and after its evaluation.
        pytest.param("rail", 6, [("epoch_end", 6), ("evaluate", 12)], marks=pytest.mark.slow),
        pytest.param("rail", 5, [("save", 18)], marks=pytest.mark.slow),
        # After the last step, when only the best checkpoint is left.
        ("rail", None, [("train_end", 18)]),
        pytest.param("rail bf16", None, [("save", 18)], marks=pytest.mark.slow),
        pytest.param("alp accumulating", None, [("train_end", 6)], marks=pytest.mark.slow),
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
        lambda folder: (folder / "optimizer.safetensors").unlink(),
        lambda folder: (folder / "rng_state.safetensors").unlink(),
        lambda folder: (folder / "checksums.json").unlink(),
    ],
    ids=["cut state", "no state", "no weights", "no progress", "no optimiser", "no rng", "no seal"],
)
def test_half_a_checkpoint_is_ignored(tmp_path, damage):
    for step in (6, 12):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        for name in ("distiller", "optimizer", "scheduler", "rng_state"):
            (folder / f"{name}.safetensors").touch()
        for name in ("trainer_state.json", "progress.json"):
            (folder / name).write_text("{}")
        seal(folder)
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
    (half / "checksums.json").unlink()
    with (half / "distiller.safetensors").open("r+b") as stream:
        stream.truncate(100)
    assert last_whole(tmp_path) == newest
    assert_same(start(tmp_path, recipe), unbroken("rail"))


@pytest.mark.slow
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
    assert trainer.progress.parts.before["training"] > 0.5
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
    resumed = distill(recipe, out=out, report=False)
    straight = distill(recipe, out=tmp_path / "straight", report=False)
    assert resumed.scores == straight.scores
    assert [e.model_copy(update={"seconds": 0}) for e in resumed.record.epochs] == [
        e.model_copy(update={"seconds": 0}) for e in straight.record.epochs
    ]
    for name in ("student/model.safetensors", "predictions.json"):
        assert (out / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name
