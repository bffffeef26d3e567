"""More processes that load batches than the machine has cores."""

from __future__ import annotations

import pytest

import tiny_runs as tiny
from limbeck.preflight import checking
from limbeck.preflight.checking import check_workers
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError


@pytest.mark.parametrize(
    ("workers", "processes", "severity"),
    [
        (0, None, None), (1, None, None), (4, None, None), (5, None, "warning"), (16, None, "warning"),
        (17, None, "error"), (2, "2", None), (3, "2", "warning"), (9, "2", "error"),
    ],
)  # fmt: skip
def test_workers_beside_four_cores(monkeypatch, workers, processes, severity):
    monkeypatch.setattr(checking, "cores", lambda: 4)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if processes:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", processes)
    found = check_workers(workers)
    assert [problem.severity for problem in found] == ([severity] if severity else [])
    for problem in found:
        assert problem.message.startswith(f"workers: {workers}") and "4 cores" in problem.message
        assert f"workers={4 // int(processes or 1)};" in problem.fix


def test_a_machine_that_does_not_say_how_many_cores(monkeypatch):
    monkeypatch.setattr(checking, "cores", lambda: None)
    assert check_workers(256) == []


def test_a_run_is_refused_before_its_first_step(monkeypatch, tmp_path):
    monkeypatch.setattr(checking, "cores", lambda: 1)
    tiny.save(tiny.bert(1), tmp_path / "start")
    recipe = Recipe.load(
        "finetune",
        task="reviews",
        data=str(tiny.write_csv(tmp_path / "d.csv", 30)),
        text_columns=["review"],
        label_column="verdict",
        max_length=24,
        workers=5,
        **{"student.init": str(tmp_path / "start")},
    )
    with pytest.raises(LimbeckError, match=r"workers: 5, and this machine has 1 core\b"):
        distill(recipe, tmp_path / "run", report=False)
    assert not (tmp_path / "run").exists()


def test_thousands_are_no_number_of_processes():
    with pytest.raises(LimbeckError, match="workers"):
        Recipe.load("finetune", task="sst2", workers=5000)
