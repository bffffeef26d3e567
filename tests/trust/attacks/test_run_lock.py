"""One process writes a run's folder; what is there is one run's from recipe to student."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_output_folder import contents, recipe_of

import tiny_runs as tiny
from limbeck.records import Record
from limbeck.run import distill
from limbeck.run.earlier_run import EarlierRun
from limbeck.run.run_folder import RunFolder
from limbeck.students import load_model
from limbeck.support.errors import LimbeckError
from limbeck.support.lock import HOLDER, LOCK, in_use

# As a run's process does it, without the seconds that importing limbeck takes.
HOLD = """
import json, os, socket, sys, time
from pathlib import Path
from filelock import FileLock
folder = Path(sys.argv[1])
lock = FileLock(folder / sys.argv[2])
lock.acquire()
about = {"process": os.getpid(), "host": socket.gethostname(), "since": "now", "command": "other"}
(folder / sys.argv[3]).write_text(json.dumps(about))
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    tiny.save(tiny.knowing_teacher(3), folder / "teacher")
    tiny.save(tiny.bert(2), folder / "start")
    (folder / "rows").mkdir()
    tiny.write_csv(folder / "rows" / "train.csv", 40)
    distill(recipe_of(folder), folder / "run")
    return folder


@pytest.fixture
def copied(place, tmp_path) -> Path:
    return Path(shutil.copytree(place / "run", tmp_path / "copy"))


@pytest.fixture
def holder(tmp_path):
    """A process that holds a new folder's lock."""
    folder = tmp_path / "run"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), LOCK, HOLDER], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process, folder
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_folder_in_use_is_refused_and_its_holder_named(place, holder):
    process, folder = holder
    with pytest.raises(LimbeckError, match=rf"in use by process {process.pid} on ") as caught:
        distill(recipe_of(place), folder)
    assert f"kill {process.pid}" in str(caught.value) and "--out" in str(caught.value)
    assert {path.name for path in folder.iterdir()} == {LOCK, HOLDER}


def test_a_killed_process_holds_nothing(place, holder):
    process, folder = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (folder / HOLDER).exists()
    assert distill(recipe_of(place), folder, report=False).record.status == "finished"
    assert not (folder / HOLDER).exists()


def test_the_same_folder_twice_in_one_process_is_refused(tmp_path):
    with in_use(tmp_path / "run"):
        with (
            pytest.raises(LimbeckError, match=f"process {os.getpid()}"),
            in_use(tmp_path / "run"),
        ):
            pass
        with in_use(tmp_path / "other"):
            pass
    assert not (tmp_path / "run").exists() and not (tmp_path / "other").exists()


def test_a_refused_start_leaves_no_folder(place, tmp_path):
    with pytest.raises(LimbeckError, match="select_by"):
        distill(recipe_of(place, select_by="f2"), tmp_path / "deep" / "run")
    assert list(tmp_path.iterdir()) == []


def test_who_waited_finds_a_run_that_another_finished(place, tmp_path, monkeypatch):
    """Between the first look and the lock the other process came to its end."""
    recipe, looks = recipe_of(place), []
    finished = EarlierRun.finished

    def late(self, *args, **kwargs):
        looks.append(self.folder.path)
        if len(looks) == 1:
            shutil.copytree(place / "run", self.folder.path)
            return None
        return finished(self, *args, **kwargs)

    monkeypatch.setattr(EarlierRun, "finished", late)
    before = contents(place / "run")
    result = distill(recipe, tmp_path / "run", report=False)
    assert result.record.status == "finished" and contents(tmp_path / "run") == before


# ---- recipe, record and student are one run's ----


@pytest.mark.slow
def test_another_run_s_record_is_not_this_one_s(place, copied):
    other = distill(recipe_of(place, seed=5), copied.with_name("other"), report=False)
    shutil.copy(other.path / "record.json", copied / "record.json")
    assert EarlierRun(RunFolder(copied), recipe_of(place)).finished() is None
    again = distill(recipe_of(place), copied, report=False)
    assert again.record.recipe["seed"] == 42
    assert contents(copied)["student/model.safetensors"] == (
        (place / "run" / "student" / "model.safetensors").read_bytes()
    )


def test_another_run_s_student_is_not_this_one_s(place, copied):
    other = distill(recipe_of(place, seed=5), copied.with_name("other"), report=False)
    shutil.rmtree(copied / "student")
    shutil.copytree(other.path / "student", copied / "student")
    assert EarlierRun(RunFolder(copied), recipe_of(place)).finished() is None


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "bit":
        content[-100] ^= 1
        path.write_bytes(content)
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["bit", "cut", "empty", "gone"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_damaged_student_is_not_finished(place, copied, caplog, name, how):
    damage(copied / "student" / name, how)
    with caplog.at_level(logging.WARNING, "limbeck"):
        assert EarlierRun(RunFolder(copied), recipe_of(place)).finished() is None
    assert f"student/{name}" in caplog.text and "trained again" in caplog.text


@pytest.mark.slow
def test_a_damaged_student_is_trained_again_and_ends_the_same(place, copied):
    damage(copied / "student" / "model.safetensors", "bit")
    distill(recipe_of(place), copied, report=False)
    name = "student/model.safetensors"
    assert (copied / name).read_bytes() == (place / "run" / name).read_bytes()
    assert EarlierRun(RunFolder(copied), recipe_of(place)).finished() is not None


def test_a_damaged_student_is_no_teacher(place, copied):
    damage(copied / "student" / "model.safetensors", "bit")
    for path in (copied, copied / "student"):
        with pytest.raises(LimbeckError, match="changed since the run wrote it"):
            load_model(path)
    shutil.copytree(copied / "student", copied.with_name("elsewhere"))
    load_model(copied.with_name("elsewhere"))


# ---- real processes ----

RUN = """
import sys
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
try:
    distill(Recipe.load(sys.argv[1]), out=sys.argv[2], overwrite=True)
except LimbeckError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""


def started(place: Path, folder: Path, out: Path, **changes) -> subprocess.Popen:
    recipe = recipe_of(place, max_steps=60, **changes)
    path = folder / f"{changes['seed']}.yaml"
    path.write_text(recipe.to_yaml(), encoding="utf-8")
    command = [sys.executable, "-c", RUN, str(path), str(out)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_recipes_at_once_leave_one_whole_run(place, tmp_path):
    out = tmp_path / "run"
    processes = [started(place, tmp_path, out, seed=seed) for seed in (1, 2)]
    said = [process.communicate(timeout=300)[1] for process in processes]
    codes = [process.returncode for process in processes]
    # The second waits for nothing: it is refused, or comes when the first is done.
    assert sorted(codes) in ([0, 2], [0, 0])
    assert all("in use by process" in text for text, code in zip(said, codes, strict=True) if code)
    record = Record.load(out)
    seed = record.recipe["seed"]
    straight = distill(
        recipe_of(place, max_steps=60, seed=seed), tmp_path / "straight", report=False
    )
    name = "student/model.safetensors"
    assert (out / name).read_bytes() == (straight.path / name).read_bytes()
    assert json.loads((out / "record.json").read_text())["status"] == "finished"


@pytest.mark.slow
def test_the_same_command_goes_on_at_once_after_a_kill(place, tmp_path):
    out = tmp_path / "run"
    process = started(place, tmp_path, out, seed=3, workers=2, checkpoint_steps=5)
    while process.poll() is None and not list(out.glob("checkpoints/*/checksums.json")):
        time.sleep(0.01)
    process.kill()
    process.communicate()
    again = started(place, tmp_path, out, seed=3, workers=2, checkpoint_steps=5)
    assert (again.communicate(timeout=300)[1], again.returncode)[1] == 0
    straight = distill(recipe_of(place, max_steps=60, seed=3), tmp_path / "straight", report=False)
    name = "student/model.safetensors"
    assert (out / name).read_bytes() == (straight.path / name).read_bytes()
