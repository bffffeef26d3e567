"""A study's runs on a local Ray cluster of two workers, one of which is killed at its work."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
from tiny_studies import plan_of

import limbeck
from limbeck.lab.commands import study
from limbeck.lab.study import SharedRuns, carry_out
from limbeck.support.errors import LimbeckError
from processes_holding import holders


def test_an_address_needs_its_engine() -> None:
    with pytest.raises(LimbeckError, match="without a cluster"):
        study(arguments=["rail-kd-table-2"], jobs=None, engine="local", address="here:6379")
    with pytest.raises(LimbeckError, match="unknown engine 'spark'"):
        study(arguments=["rail-kd-table-2"], jobs=None, engine="spark", address=None)


@pytest.fixture
def found_by_workers(monkeypatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", str(Path(limbeck.__file__).parents[1]))
    # Workers are as urgent as what else this machine does.
    monkeypatch.setenv("RAY_worker_niceness", "0")


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # of Ray and its libraries
def test_a_worker_that_is_killed_is_replaced(
    place, tmp_path, found_by_workers, monkeypatch
) -> None:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    plan, runs = (
        plan_of(place, tmp_path, "keep_students: false\n"),
        SharedRuns(tmp_path / "runs", False),
    )
    students = [run.name for group in plan.groups for _, made in group.tried for run in made]
    killed: list[int] = []
    over = threading.Event()

    def kill_one() -> None:
        """The first worker that holds the lock of a student's run."""
        while not killed and not over.is_set():
            for name in students:
                if (runs.path / name / "recipe.yaml").exists():
                    killed.extend(holders(runs.path / f".{name}.lock")[:1])
            for process in killed:
                os.kill(process, signal.SIGKILL)
            time.sleep(0.01)

    killer = threading.Thread(target=kill_one)
    killer.start()
    try:
        assert carry_out(plan, runs, jobs=2, engine="ray") == []
    finally:
        over.set()
        killer.join()
        ray.shutdown()
    assert killed
    assert all(runs.held(name) is not None for name in students)
