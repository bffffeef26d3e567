"""Killed at any write, or out of room at any, a run goes on, ends as it would have, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors import SafetensorError
from test_output_folder import contents, recipe_of

import tiny_runs as tiny
from limbeck.records import Record
from limbeck.run import distill
from limbeck.run.earlier_run import EarlierRun
from limbeck.run.run_folder import RunFolder
from limbeck.support.errors import LimbeckError
from limbeck.support.lock import HOLDER, LOCK
from limbeck.support.manifest import NAME, Manifest
from limbeck.training import DistillationTrainer, checkpoints
from quick_cases import quick


class Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    tiny.save(tiny.knowing_teacher(3), folder / "teacher")
    tiny.save(tiny.bert(2), folder / "start")
    (folder / "rows").mkdir()
    tiny.write_csv(folder / "rows" / "train.csv", 40)
    return folder


@pytest.fixture(scope="module")
def unbroken(place):
    """Files of a run that nothing stopped, by their names."""
    distill(recipe_of(place), place / "unbroken", report=False)
    return contents(place / "unbroken")


@pytest.fixture(scope="module")
def writes(place) -> int:
    """How often a run waits for the disk."""
    count = [0]
    original = os.fsync

    def counting(handle):
        count[0] += 1
        return original(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", counting)
        distill(recipe_of(place), place / "counted", report=False)
    return count[0]


def assert_as_unbroken(folder: Path, unbroken: dict[str, bytes]) -> None:
    """The same student and answers, and no other files."""
    found = contents(folder)
    assert found.keys() == unbroken.keys()
    for name, content in unbroken.items():
        if name == "student/README.md":  # says how long the run took
            continue
        if name.startswith("student/") or name in ("predictions.json", "recipe.yaml", NAME):
            assert found[name] == content, name
    assert Record.load(folder).status == "finished"
    assert Manifest.read(folder).damaged(folder) == []


def die_at(patch: pytest.MonkeyPatch, number: int) -> None:
    """Kill at that wait for the disk, before what follows it."""
    original, left = os.fsync, [number]

    def dying(handle):
        left[0] -= 1
        if not left[0]:
            raise Killed
        return original(handle)

    patch.setattr(os, "fsync", dying)


def check_kill_at(place: Path, folder: Path, number: int, unbroken: dict, **options) -> None:
    with pytest.MonkeyPatch.context() as patch:
        die_at(patch, number)
        with pytest.raises(Killed):
            distill(recipe_of(place), folder, report=False, **options)
    distill(recipe_of(place), folder, report=False, **options)
    assert_as_unbroken(folder, unbroken)


# Two of the first writes of a run, where its folder is not yet one, and two later ones.
@pytest.mark.parametrize("number", quick(3, of=(1, 3, 6, -3)))
def test_a_start_after_a_kill_is_never_refused(place, tmp_path, unbroken, writes, number):
    check_kill_at(place, tmp_path / "run", number % (writes + 1), unbroken)


@pytest.mark.slow
def test_a_start_after_a_kill_at_any_write_is_never_refused(place, tmp_path, unbroken, writes):
    for number in range(1, writes + 1):
        check_kill_at(place, tmp_path / str(number), number, unbroken)


@pytest.mark.parametrize("number", quick(-8, of=(1, 3, -8)))
@pytest.mark.slow
def test_overwrite_after_a_kill_goes_on(place, tmp_path, unbroken, writes, number):
    distill(recipe_of(place, seed=8), tmp_path / "run", report=False)
    check_kill_at(place, tmp_path / "run", number % (writes + 1), unbroken, overwrite=True)


@pytest.mark.slow
def test_overwrite_goes_on_from_the_last_checkpoint_and_replaces_what_is_finished(
    place, tmp_path, unbroken, monkeypatch
):
    folder, steps = tmp_path / "run", []
    compute = DistillationTrainer.compute_loss

    def counting(self, model, *args, **kwargs):
        if model.training:
            steps.append(self.state.global_step)
        return compute(self, model, *args, **kwargs)

    monkeypatch.setattr(DistillationTrainer, "compute_loss", counting)
    recipe = recipe_of(place, checkpoint_steps=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunFolder, "ship", lambda *_: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            distill(recipe, folder, report=False)
    assert steps == [0, 1, 2]
    distill(recipe, folder, report=False, overwrite=True)
    assert steps == [0, 1, 2]  # nothing was trained twice
    distill(recipe, folder, report=False, overwrite=True)
    assert steps == [0, 1, 2] * 2


def test_what_a_kill_leaves_first_is_no_reason_to_refuse(place, tmp_path, unbroken):
    (tmp_path / "run").mkdir()
    for left in (".recipe.yaml.abc.tmp", f".{NAME}.abc.tmp", LOCK, HOLDER):
        (tmp_path / "run" / left).touch()
    distill(recipe_of(place), tmp_path / "run", report=False)
    assert_as_unbroken(tmp_path / "run", unbroken)


# ---- a full disk ----


def full(*args, **kwargs):
    raise OSError(28, "No space left on device")


def full_in_words(*args, **kwargs):
    raise SafetensorError(
        "Error while serializing: I/O error: No space left on device (os error 28)"
    )


PLACES = {
    "weights of a checkpoint": (checkpoints, "save_model", full_in_words),
    "state of a checkpoint": (checkpoints, "write_state", full_in_words),
    "seal of a checkpoint": (checkpoints, "write_whole", full),
    "student": (DistillationTrainer, "save_model", None),
    "its place": (RunFolder, "ship", full),
}


@pytest.mark.parametrize("what", quick("its place", of=PLACES))
def test_a_full_disk_is_one_message_and_the_run_goes_on(place, tmp_path, unbroken, what):
    owner, name, error = PLACES[what]
    original = getattr(owner, name)

    def shipping(self, *args, **kwargs):
        return original(self, *args, **kwargs) if kwargs else full_in_words()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, error or shipping)
        with pytest.raises(LimbeckError, match="the disk is full") as caught:
            distill(recipe_of(place), tmp_path / "run", report=False)
    assert len(caught.value.problems) == 1 and "make room" in caught.value.problems[0].fix
    record = Record.load(tmp_path / "run")
    assert record.status == "failed"
    assert "the disk is full" in record.error and "make room" in record.error
    left = contents(tmp_path / "run")
    assert not any("student.part" in path for path in left)
    assert all(
        (folder / "checksums.json").is_file()
        for folder in (tmp_path / "run").glob("checkpoints/checkpoint-*")
    )
    distill(recipe_of(place), tmp_path / "run", report=False)
    assert_as_unbroken(tmp_path / "run", unbroken)


@pytest.mark.parametrize("bytes_", [1_000, 20_000])
@pytest.mark.slow
def test_the_system_s_own_limit_on_files(place, tmp_path, unbroken, bytes_):
    """Below the recipe's size nothing is begun; above it, checkpoints do not fit."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, before[1]))
    try:
        with pytest.raises(LimbeckError, match="the disk is full"):
            distill(recipe_of(place), tmp_path / "run", report=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    if (tmp_path / "run" / "record.json").is_file():
        assert Record.load(tmp_path / "run").status == "failed"
    distill(recipe_of(place), tmp_path / "run", report=False)
    assert_as_unbroken(tmp_path / "run", unbroken)


# ---- real kills ----

RUN = """
import sys
from limbeck.recipe import Recipe
from limbeck.run import distill
distill(Recipe.load(sys.argv[1]), out=sys.argv[2], overwrite=sys.argv[3] == "True", report=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_again_and_again_at_any_moment(place, tmp_path, overwrite):
    recipe = recipe_of(place, max_steps=40, checkpoint_steps=3)
    (tmp_path / "recipe.yaml").write_text(recipe.to_yaml(), encoding="utf-8")
    out = tmp_path / "run"
    if overwrite:
        distill(recipe_of(place, seed=8), out, report=False)
    command = [sys.executable, "-c", RUN, str(tmp_path / "recipe.yaml"), str(out), str(overwrite)]
    chance = random.Random(overwrite)
    for _ in range(6):
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (out / HOLDER).exists():
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 3))
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert subprocess.run(command, check=False).returncode == 0
    distill(recipe, tmp_path / "straight", report=False)
    assert_as_unbroken(out, contents(tmp_path / "straight"))


def test_a_copy_of_a_run_is_as_good(place, tmp_path, unbroken):
    shutil.copytree(place / "unbroken", tmp_path / "copy")
    assert EarlierRun(RunFolder(tmp_path / "copy"), recipe_of(place)).finished() is not None
    assert json.loads((tmp_path / "copy" / NAME).read_text())["limbeck"]


def test_a_methods_words_may_change_between_versions(place, tmp_path, unbroken):
    shutil.copytree(place / "unbroken", tmp_path / "copy")
    recipe = recipe_of(place).model_copy(
        update={"summary": "other words", "paper": "another title"}
    )
    assert EarlierRun(RunFolder(tmp_path / "copy"), recipe).finished() is not None
