"""Every second of a run belongs to one named part, and the parts add up to the run."""

from __future__ import annotations

import time
from importlib import import_module
from itertools import count
from pathlib import Path

import pytest
from transformers import Trainer

import tiny_runs as tiny
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.records.facts import Cost
from limbeck.run import distill
from limbeck.training import DistillationTrainer
from limbeck.training.progress import PARTS, Parts
from quick_cases import quick

module, training = (import_module(f"limbeck.run.{name}") for name in ("distill", "train"))
ending = import_module("limbeck.run.finish")
OWN = {"text_columns": ["review"], "label_column": "verdict"}
NAMED = [name for name in Cost.model_fields if name.endswith("_seconds") and name[:5] != "total"]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("seconds")
    tiny.save(tiny.knowing_teacher(4), folder / "teacher")
    tiny.save(tiny.bert(1), folder / "start")
    tiny.write_csv(folder / "reviews.csv", 60)
    return folder


def recipe_of(place: Path, method: str = "kd", **changes) -> Recipe:
    given = {"task": "reviews", "data": str(place / "reviews.csv"), "epochs": 2, **OWN}
    given |= {"teacher": str(place / "teacher"), "student.init": str(place / "start")}
    return Recipe.load(method, **(given | {"max_length": 24, "batch_size": 8} | changes))


def parts_of(cost: Cost) -> dict[str, float]:
    return {name: getattr(cost, name) for name in NAMED}


class Hand:
    """A clock that stands still until someone turns it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hand(monkeypatch) -> Hand:
    clock = Hand()
    monkeypatch.setattr(module, "Parts", lambda: Parts(clock=clock))
    return clock


def test_one_part_runs_at_a_time():
    """A clock that goes on by 1 at each look: 12 looks, 11 seconds, wherever they went."""
    ticks = count()
    parts = Parts(clock=lambda: float(next(ticks)))
    with parts.part("training"):
        with parts.part("evaluation"), parts.part("saving"):
            pass
        with pytest.raises(KeyError), parts.part("saving"):
            raise KeyError
    read = parts.read()
    assert read.keys() == set(PARTS)
    assert sum(read.values()) == float(next(ticks)) - 1
    assert read["saving"] == 2 and read["evaluation"] == 2


def test_what_an_earlier_start_came_to_is_added_once():
    parts = Parts(clock=lambda: 0.0)
    parts.restore({"training": 5.0, "storing": 1.0})
    parts.restore({"training": 7.0})  # a later checkpoint knows what the earlier one knew
    assert parts.read()["training"] == 7.0 and parts.read()["storing"] == 0.0


def test_the_parts_of_a_run_add_up_to_its_time(place, tmp_path):
    began = time.perf_counter()
    record = distill(recipe_of(place), out=tmp_path / "run", report=False).record
    took = time.perf_counter() - began
    parts = parts_of(record.cost)
    assert all(value is not None and value >= 0 for value in parts.values())
    assert sum(parts.values()) == pytest.approx(record.cost.total_seconds)
    # What is left is a look at the folder before, and the record after.
    assert 0.5 * took < record.cost.total_seconds <= took


@pytest.mark.parametrize(
    ("part", "owner", "name"),
    [
        ("evaluation_seconds", Trainer, "predict"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("evaluation_seconds", ending, "reference_scores"),
                ("preparation_seconds", module.check, "check_run"),
                ("measuring_seconds", ending, "model_facts"),
                ("saving_seconds", ending, "write_student"),
            )
        ),
        ("student_seconds", DistillationTrainer, "training_step"),
    ],
)
def test_work_counts_in_its_part_and_in_no_other(
    part, owner, name, place, tmp_path, monkeypatch, hand
):
    original, calls = getattr(owner, name), []

    def turning(*args, **kwargs):
        hand.now += 1000.0
        calls.append(name)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, turning)
    parts = parts_of(distill(recipe_of(place), out=tmp_path / "run", report=False).record.cost)
    if part == "student_seconds":  # the teacher's share of training is timed by itself
        parts[part] += parts.pop("teacher_seconds")
    assert parts.pop(part) == 1000.0 * len(calls) > 0
    assert set(parts.values()) == {0.0}


@pytest.mark.parametrize("at", quick(11, of=(5, 11)))
@pytest.mark.slow
def test_seconds_of_a_continued_run_are_those_of_all_its_steps(
    at, place, tmp_path, monkeypatch, hand
):
    """Killed in its first or second epoch. Every step turns the clock; steps that were lost do not count."""
    recipe, folder = recipe_of(place, checkpoint_steps=2), tmp_path / "run"
    original, deadly = training.Display, [True]

    class Turning(original):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == at and deadly:
                raise tiny.KilledError
            hand.now += 1000.0

    monkeypatch.setattr(training, "Display", Turning)
    with pytest.raises(tiny.KilledError):
        distill(recipe, out=folder, report=False)
    deadly.clear()
    hand.now += 1e6  # the pause between the starts
    record = distill(recipe, out=folder, report=False).record
    parts = parts_of(record.cost)
    assert min(parts.values()) >= 0
    # 54 rows in batches of 8, twice.
    assert parts["student_seconds"] + parts["teacher_seconds"] == 14 * 1000.0
    assert record.cost.total_seconds == 14 * 1000.0
    assert Record.load(folder).cost == record.cost


@pytest.mark.slow
def test_a_run_of_several_teachers_counts_the_runs_made_first(place, tmp_path):
    tiny.save(tiny.knowing_teacher(3), place / "other")
    teachers = [str(place / "teacher"), str(place / "other")]
    changes = {"teacher": None, "teachers": teachers, "team.student_epochs": 1, "epochs": 1}
    recipe = recipe_of(place, "skd-student-rank", **changes)
    record = distill(recipe, out=tmp_path / "run", report=False).record
    assert sum(parts_of(record.cost).values()) == pytest.approx(record.cost.total_seconds)
    made = sum(Record.load(run).cost.total_seconds for run in record.team.runs)
    assert made < record.cost.team_seconds < record.cost.total_seconds
