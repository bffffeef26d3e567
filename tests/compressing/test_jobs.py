"""Trainings in other processes end as in one process, and a process that dies costs one trial."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import tiny_compression as tiny

import limbeck
from limbeck.compressing import compress, costs, finals
from limbeck.compressing.trials import numbered_trials
from limbeck.support.errors import LimbeckError
from limbeck.support.workers import OneAfterTheOther
from processes_holding import holders


def compressed(folder: Path, out: str, **settings) -> dict:
    """A search of four trials in two batches and two finalists; its front."""
    rows = {"data": str(folder / "rows.csv"), "epochs": 2}
    asked = {"trials": 4, "trial_rows": 100, "finalists": 2, "seeds": 1, "precisions": ("int8",)}
    settings = asked | {"methods": ("kd-soft", "kd"), "jobs": 2} | settings
    limbeck.compress(folder / "teacher", "size=90KB", folder / out, recipe=rows, **settings)
    return json.loads((folder / out / "front.json").read_text())


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """A folder with a teacher and rows, where every model is as fast as every other."""
    tiny.write_teacher(tmp_path / "teacher")
    tiny.write_rows(tmp_path / "rows.csv", 300)
    for module in (costs, finals):
        monkeypatch.setattr(module, "timed", lambda who, _: [(1.0, 1e6)] * len(who))
    return tmp_path


def in_one_process(folder: Path) -> dict:
    """The same batches without another process."""

    @contextmanager
    def one(work, *_):
        yield OneAfterTheOther(work)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compress, "workers", one)
        return compressed(folder, "one")


def compared(front: dict) -> dict:
    """What does not depend on the time or the folder.

    A static shape is exported with random weights, whose file may differ by a byte.
    """
    trials = [(one["candidate"], one["score"], one["error"]) for one in front["trials"]]
    known = ("name", "kind", "precision", "costs", "chosen_on", "score", "seeds", "recommended")
    return {"trials": trials, "points": [[one[key] for key in known] for one in front["points"]]}


def killed_at_work(locks: str, folder: Path, killed: list[int], over: threading.Event) -> None:
    """End the first process that holds a run's lock."""
    while not killed and not over.is_set():
        for lock in folder.glob(locks):
            killed.extend(holders(lock)[:1])
        for process in killed:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.01)


@contextmanager
def a_kill(locks: str, folder: Path):
    killed: list[int] = []
    over = threading.Event()
    killer = threading.Thread(target=killed_at_work, args=(locks, folder, killed, over))
    killer.start()
    try:
        yield killed
    finally:
        over.set()
        killer.join()


@pytest.mark.slow
def test_a_process_that_dies_costs_one_trial(searched) -> None:
    expected = compared(in_one_process(searched))
    assert all(score is not None for _, score, _ in expected["trials"])
    assert compared(compressed(searched, "two")) == expected
    with a_kill("killed/trials/run-001/.limbeck-lock", searched) as killed:
        front = compressed(searched, "killed")
    assert killed
    done = [*numbered_trials(searched / "killed").values()]
    assert [one.error for one in done] == ["", "its process ended by signal SIGKILL", "", ""]
    assert [one.score is None for one in done] == [False, True, False, False]
    assert any(one["recommended"] for one in front["points"])


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # of Ray and its libraries
def test_a_search_on_ray_ends_as_in_one_process(searched, monkeypatch) -> None:
    """Also if a worker is killed at its work: its training is begun again."""
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", str(Path(limbeck.__file__).parents[1]))
    monkeypatch.setenv("RAY_worker_niceness", "0")
    expected = compared(in_one_process(searched))
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with a_kill("ray/trials/run-*/.limbeck-lock", searched) as killed:
            found = compared(compressed(searched, "ray", engine="ray"))
    finally:
        ray.shutdown()
    assert killed
    assert found == expected


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"engine": "rai"}, "unknown engine 'rai' did you mean 'ray'? choices: local, ray"),
        ({"address": "here:1"}, "--address here:1 without a cluster give --engine ray as well"),
        ({"engine": "ray"}, "limbeck[ray]"),
        ({"jobs": 0}, "jobs is 0"),
    ],
)
def test_what_is_wrong_with_processes_is_said_before_any_work(
    tmp_path, monkeypatch, settings, said
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # not installed
    teacher = tiny.write_teacher(tmp_path / "teacher")
    with pytest.raises(LimbeckError) as caught:
        limbeck.compress(teacher, "size=90KB", tmp_path / "out", **settings)
    assert said in "\n".join(f"{one.message} {one.fix}" for one in caught.value.problems)
    assert not (tmp_path / "out").exists()
