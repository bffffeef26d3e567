"""Settings searched by Optuna inside a study: on disk, gone on with, chosen on dev like a grid's."""

from __future__ import annotations

import math

import pytest
from tiny_studies import plan_of, scored

import limbeck.lab.study.dev_search as dev_search
from limbeck.lab.study import SharedRuns, carry_out, estimate, load_study, write_study
from limbeck.lab.study.dev_search import STORAGE
from limbeck.lab.study.study_output import gather_results
from limbeck.support.errors import LimbeckError

optuna = pytest.importorskip("optuna")

SEARCH = "select: {search: {lr: [0.001, 0.1], batch_size: [8, 16, 32], trials: 4}}\n"


def planned(place, folder, **given):
    return plan_of(place, folder, SEARCH, folder, "kd: ", **{"table.baseline": "kd"} | given)


def peak(settings) -> float:
    """Best at a rate of .01."""
    return 80 - abs(math.log10(settings["lr"]) + 2)


class Course:
    """A study whose runs take no time: what is due is scored at once."""

    def __init__(self, plan, room: int = 1, score=peak) -> None:
        self.plan, self.room, self.score, self.held, self.failed = plan, room, score, {}, set()
        for run in plan.teachers.values():
            self.held[run.name] = scored(50.0)

    def ended(self, name: str) -> bool:
        return name in self.held or name in self.failed

    def due(self):
        self.plan.advance(self.held.get, self.ended, self.room)
        return self.plan.due(self.held.get, self.ended)

    def go(self, rounds: int = 100, fails=lambda run: False):
        for _ in range(rounds):
            due = self.due()
            for run in due:
                if fails(run):
                    self.failed.add(run.name)
                else:
                    self.held[run.name] = scored(self.score(run.settings))
            if not due:
                break
        return self

    @property
    def choice(self):
        return self.plan.choice(self.plan.groups[0], self.held.get, self.ended)


def asked(plan) -> list[dict]:
    return [dict(cell) for cell, _ in plan.groups[0].tried]


def different(plan) -> int:
    """Cells that were asked for, each once: the seed follows the folder's name, and may draw a cell twice."""
    return len({tuple(cell.items()) for cell, _ in plan.groups[0].tried})


def test_a_search_tries_so_many_cells_and_the_best_is_run_with_every_seed(place, tmp_path) -> None:
    course = Course(planned(place, tmp_path)).go()
    cells = asked(course.plan)
    assert len(cells) == 4
    assert all(0.001 <= cell["lr"] <= 0.1 and cell["batch_size"] in (8, 16, 32) for cell in cells)
    assert course.choice.settings == max(cells, key=peak)
    # A teacher, four trials with the first seed, the chosen cell with the second. A repeated cell is not run again.
    assert len(course.held) == 2 + different(course.plan) <= course.plan.count == 6
    assert course.held.keys() >= {run.name for run in course.choice.runs}


@pytest.mark.slow
def test_one_that_was_stopped_goes_on_with_the_trial_it_was_at(place, tmp_path) -> None:
    whole = Course(planned(place, tmp_path / made(tmp_path, "whole"))).go()
    folder = tmp_path / made(tmp_path, "stopped")
    first = Course(planned(place, folder)).go(rounds=3)
    (open_run,) = first.due()  # it has been asked for, and the process ends
    second = Course(planned(place, folder))
    second.held = dict(first.held)
    assert second.due() == [open_run]
    second.go()
    assert asked(second.plan) == asked(whole.plan)
    assert second.choice.settings == whole.choice.settings
    # Optuna's own reader finds the same trials.
    (name,) = optuna.get_all_study_names(f"sqlite:///{folder / STORAGE}")
    kept = optuna.load_study(study_name=name, storage=f"sqlite:///{folder / STORAGE}")
    assert [trial.value for trial in kept.trials] == [
        pytest.approx(peak(cell)) for cell in asked(second.plan)
    ]


def made(tmp_path, name: str) -> str:
    (tmp_path / name).mkdir()
    return name


def test_as_many_are_open_as_there_are_processes(place, tmp_path) -> None:
    course = Course(planned(place, tmp_path), room=3)
    assert len(course.due()) == different(course.plan)
    assert len(asked(course.plan)) == 3
    course.go()
    assert len(asked(course.plan)) == 4


def test_cells_that_are_asked_for_again_end_no_search(place, tmp_path) -> None:
    """Of three values six trials repeat some at least three times."""
    few = SEARCH.replace("lr: [0.001, 0.1], ", "").replace("trials: 4", "trials: 6")
    course = Course(
        plan_of(place, tmp_path, few, tmp_path, "kd: ", **{"table.baseline": "kd"}),
        score=lambda settings: settings["batch_size"],
    )
    course.go()
    cells = asked(course.plan)
    assert len(cells) == 6
    assert course.choice.settings == max(cells, key=lambda cell: cell["batch_size"])


def test_a_trial_that_failed_is_not_chosen(place, tmp_path) -> None:
    course = Course(planned(place, tmp_path), score=lambda settings: 1.0)
    first = course.due()[0]
    course.go(fails=lambda run: run == first)
    # Of equals the first, but for the one that failed.
    assert course.choice.settings == asked(course.plan)[1]
    assert course.failed == {first.name}


def test_nothing_is_searched_before_its_teacher_is_there(place, tmp_path) -> None:
    course = Course(planned(place, tmp_path))
    course.held.clear()
    assert course.due() == list(course.plan.teachers.values())
    assert asked(course.plan) == []
    assert not (tmp_path / STORAGE).exists()


@pytest.mark.slow
def test_a_search_of_tiny_models(place, tmp_path) -> None:
    plan = planned(place, tmp_path, **{"select.search": {"lr": [0.001, 0.1], "trials": 2}})
    runs = SharedRuns(tmp_path / "runs", keep_students=False)
    assert gather_results(plan, runs).open == 4
    assert carry_out(plan, runs) == []
    table, page = write_study(plan, runs, tmp_path)
    (row,) = [row for row in table.rows if row.role == "student"]
    assert (row.label, *(cell.n for cell in row.cells.values())) == ("kd", 2)
    tried = [cell["lr"] for cell in asked(plan)]
    text = page.read_text(encoding="utf-8")
    assert all(f"lr={lr} batch_size=" in text for lr in tried)
    again = planned(place, tmp_path, **{"select.search": {"lr": [0.001, 0.1], "trials": 2}})
    assert (found := estimate(again, runs)).held == found.runs == 4


def test_what_is_wrong_with_a_search_is_said_together(place, tmp_path) -> None:
    with pytest.raises(LimbeckError) as caught:
        plan_of(
            place,
            tmp_path,
            "select: {grid: {lr: [0.1]}, search: {lr: [0.1, 0.001], seed: [1, 2], epochs: [[1], 2, 3], trials: 3}}\n",
        )
    assert [problem.message.split(":")[0] for problem in caught.value.problems] == [
        "select.search",
        "select",
        "select.search.lr",
        "select.search.epochs",
    ]
    (tmp_path / "mine.yaml").write_text(
        "title: t\ntasks: [a]\nmethods: {kd: }\nselect: {search: {trials: 3}}\n"
    )
    with pytest.raises(LimbeckError, match="trials of nothing"):
        load_study(tmp_path / "mine.yaml", data="pocket")


def test_without_optuna_a_study_says_so_at_once(place, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(dev_search, "find_spec", lambda name: None)
    with pytest.raises(LimbeckError, match="Optuna is not installed") as caught:
        planned(place, tmp_path)
    assert "limbeck[optuna]" in caught.value.problems[0].fix
