"""Checkpoints hold nothing pickled, are read only as they were written, and an older one stands in."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, MultiStepLR, SequentialLR
from transformers import Trainer

import tiny_runs as tiny
from limbeck.support.errors import LimbeckError
from limbeck.training import checkpoints
from limbeck.training.checkpoints import last_whole, read_state, write_state
from quick_cases import quick
from resumed_runs import assert_same, killed_at, outcome, recipe_of, start

SETTINGS = {
    "adamw": {},
    "adamw accumulating": {"accumulation": 2, "group_by_length": False},
    "sgd": {"optimizer": "sgd", "lr": 0.05},
    "sgd in steps": {"optimizer": "sgd", "lr": 0.05, "lr_schedule": "step", "nesterov": True},
}


class Code:
    """What runs when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.fixture
def no_pickle(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("pickled")

    for module, name in ((torch, "load"), (torch, "save"), (pickle, "load"), (pickle, "loads")):
        monkeypatch.setattr(module, name, refuse)


def flip(path: Path, at: float = 0.9) -> None:
    """One bit."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * at)] ^= 1
    path.write_bytes(content)


# ---- nothing is pickled ----


@pytest.mark.parametrize(
    "setting",
    ["adamw", *(pytest.param(n, marks=pytest.mark.slow) for n in SETTINGS if n != "adamw")],
)
@pytest.mark.slow
def test_a_run_continued_without_pickles_ends_bit_equal(tmp_path, setting, no_pickle):
    changes = SETTINGS[setting]
    unbroken = outcome(start(tmp_path / "whole", recipe_of("rail", **changes)))
    recipe = recipe_of("rail", **changes, checkpoint_steps=2)
    killed_at(tmp_path / "cut", recipe, "step_begin", 5)
    resumed = start(tmp_path / "cut", recipe)
    assert_same(resumed, unbroken)
    written = {path.suffix for path in (tmp_path / "cut").rglob("*") if path.is_file()}
    assert written == {".safetensors", ".json"}


def test_every_method_that_pickles_in_the_trainer_is_replaced():
    pickling = ("_optimizer_and_scheduler", "_scaler", "_rng_state")
    for name in (
        "_save_checkpoint",
        *(f"{way}{what}" for way in ("_save", "_load") for what in pickling),
    ):
        assert getattr(checkpoints.Resumes, name) is not getattr(Trainer, name), name


@pytest.mark.parametrize("file", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_pickled_checkpoint_is_refused_and_not_read(tmp_path, file):
    ran = tmp_path / "ran"
    folder = tmp_path / "run" / "checkpoint-6"
    folder.mkdir(parents=True)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).write_bytes(b"")
    (folder / file).write_bytes(pickle.dumps(Code(ran)))
    (folder / "trainer_state.json").write_text("{}")
    (folder / "progress.json").write_text('{"finished": false}')
    assert last_whole(tmp_path / "run") is None
    with pytest.raises(LimbeckError, match="pickled") as caught:
        start(tmp_path / "new", recipe_of("rail"), resume_from=str(folder))
    assert caught.value.problems[0].fix
    assert not ran.exists()


def test_a_pickled_file_beside_the_others_is_never_looked_at(tmp_path):
    recipe = recipe_of("rail", checkpoint_steps=4)
    killed_at(tmp_path / "run", recipe, "step_begin", 5)
    newest = last_whole(tmp_path / "run")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "scaler.pt"):
        (newest / name).write_bytes(pickle.dumps(Code(tmp_path / "ran")))
    start(tmp_path / "run", recipe)
    assert not (tmp_path / "ran").exists()


def test_what_cannot_be_written_as_numbers_is_refused(tmp_path):
    with pytest.raises(LimbeckError, match="Code is neither number"):
        write_state(tmp_path / "x.safetensors", {"state": [Code(tmp_path)]})


def test_state_comes_back_as_it_was(tmp_path):
    weights = [torch.nn.Parameter(torch.randn(3, 2)), torch.nn.Parameter(torch.randn(4))]
    optimizer = torch.optim.AdamW(
        [{"params": weights[:1], "lr": 0.1 + 0.2}, {"params": weights[1:]}]
    )
    sum((weight**2).sum() for weight in weights).backward()
    optimizer.step()
    schedules = [
        LambdaLR(optimizer, lambda step: 1 / (step + 1)),
        MultiStepLR(optimizer, [1, 1, 3]),
        SequentialLR(
            optimizer,
            [CosineAnnealingLR(optimizer, 3), CosineAnnealingLR(optimizer, 5)],
            milestones=[2],
        ),
    ]
    state = {
        "optimizer": optimizer.state_dict(),
        "schedules": [schedule.state_dict() for schedule in schedules[:2]],
        "numbers": (float("inf"), -0.0, 2**63, 1e-310, True, None, "text", [1, (2, 3)]),
        3: {"empty": {}},
    }
    write_state(tmp_path / "x.safetensors", state)
    found = read_state(tmp_path / "x.safetensors")
    torch.testing.assert_close(found["optimizer"], state["optimizer"], rtol=0, atol=0)
    assert found["schedules"] == state["schedules"]
    assert type(found["schedules"][1]["milestones"]) is type(state["schedules"][1]["milestones"])
    assert repr(found["numbers"]) == repr(state["numbers"])
    assert found[3] == {"empty": {}}


# ---- damage ----


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return outcome(start(tmp_path_factory.mktemp("unbroken"), recipe_of("rail")))


RECIPE = recipe_of("rail", checkpoint_steps=4)


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """A run that ended after step 8; nothing may change it."""
    folder = tmp_path_factory.mktemp("killed")
    killed_at(folder, RECIPE, "step_begin", 9)
    return folder


FILES = (
    "distiller.safetensors",
    "optimizer.safetensors",
    "scheduler.safetensors",
    "rng_state.safetensors",
    "trainer_state.json",
    "progress.json",
)


@pytest.mark.parametrize("file", quick("optimizer.safetensors", "progress.json", of=FILES))
@pytest.mark.parametrize("how", quick("bit", of=("bit", "empty", "gone")))
def test_an_older_checkpoint_stands_in_for_a_damaged_one(
    tmp_path, killed, unbroken, caplog, file, how
):
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    newest = last_whole(tmp_path)
    assert newest.name == "checkpoint-8"
    if how == "bit":
        flip(newest / file)
    elif how == "empty":
        (newest / file).write_bytes(b"")
    else:
        (newest / file).unlink()
    with caplog.at_level(logging.WARNING, "limbeck"):
        assert last_whole(tmp_path).name == "checkpoint-6"
    assert f"checkpoint-8 is damaged ({file})" in caplog.text
    assert "continues from checkpoint-6" in caplog.text
    if how == "bit":  # whatever the damage was, it is the same one that the run goes on from
        assert_same(start(tmp_path, RECIPE), unbroken)


@pytest.mark.slow
def test_without_an_older_one_the_run_begins_anew(tmp_path, unbroken, caplog):
    recipe = recipe_of("rail")
    killed_at(tmp_path, recipe, "step_begin", 6)
    flip(tmp_path / "checkpoint-6" / "optimizer.safetensors")
    with caplog.at_level(logging.WARNING, "limbeck"):
        resumed = start(tmp_path, recipe)
    assert "from the beginning" in caplog.text
    assert_same(resumed, unbroken)


@pytest.mark.slow
def test_a_damaged_best_epoch_is_trained_again(tmp_path, unbroken, caplog):
    """Its own checkpoint, of the second of three epochs, is what the end of the run loads."""
    recipe = recipe_of("rail")
    killed_at(tmp_path, recipe, "save", 18)
    assert (
        json.loads((tmp_path / "checkpoint-18" / "trainer_state.json").read_text())[
            "best_global_step"
        ]
        == 12
    )
    flip(tmp_path / "checkpoint-12" / "distiller.safetensors")
    assert_same(start(tmp_path, recipe), unbroken)
    assert "checkpoint-12/distiller.safetensors" in caplog.text


def test_a_named_checkpoint_that_is_damaged_is_refused(tmp_path):
    recipe = recipe_of("rail")
    killed_at(tmp_path, recipe, "step_begin", 6)
    flip(tmp_path / "checkpoint-6" / "rng_state.safetensors")
    with pytest.raises(LimbeckError, match=r"checkpoint-6 is damaged: rng_state\.safetensors"):
        start(tmp_path / "new", recipe, resume_from=str(tmp_path / "checkpoint-6"))
    (tmp_path / "checkpoint-6" / "checksums.json").unlink()
    with pytest.raises(LimbeckError, match="no complete checkpoint"):
        start(tmp_path / "new", recipe, resume_from=str(tmp_path / "checkpoint-6"))


@pytest.mark.slow
def test_the_trainers_own_way_to_continue_takes_the_last_whole_one(tmp_path, killed, unbroken):
    shutil.copytree(killed, tmp_path, dirs_exist_ok=True)
    flip(tmp_path / "checkpoint-8" / "distiller.safetensors")
    assert_same(start(tmp_path, RECIPE, resume_from=True), unbroken)


@pytest.mark.parametrize("step", quick(12, of=(6, 12, 18)))
def test_no_moment_is_without_a_whole_checkpoint(tmp_path, monkeypatch, step):
    """Killed after any file of a checkpoint, or while an older one is deleted, one is left."""
    recipe = recipe_of("rail")
    calls = {"left": step}

    def dying(original):
        def call(*args, **kwargs):
            calls["left"] -= 1
            if not calls["left"]:
                raise tiny.KilledError
            return original(*args, **kwargs)

        return call

    for name in ("save", "seal", "rotate", "_delete"):
        monkeypatch.setattr(checkpoints, name, dying(getattr(checkpoints, name)))
    monkeypatch.setattr(checkpoints, "write_state", dying(checkpoints.write_state))
    with pytest.raises(tiny.KilledError):
        start(tmp_path, recipe)
    monkeypatch.undo()
    assert last_whole(tmp_path) is not None


def test_the_best_and_the_newest_two_are_kept(tmp_path):
    recipe = recipe_of("rail", checkpoint_steps=4)
    killed_at(tmp_path, recipe, "train_end", 18)
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == [
        "checkpoint-12",
        "checkpoint-18",
    ]
