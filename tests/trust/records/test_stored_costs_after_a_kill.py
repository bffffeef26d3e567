"""What storing a teacher's outputs cost a run stays with the run, however often it is started."""

from __future__ import annotations

import time
from importlib import import_module
from pathlib import Path

import pytest

import tiny_runs as tiny
from limbeck.outputs import building
from limbeck.outputs.cache import Store, default_store
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill

module = import_module("limbeck.run.train")
OWN = {"text_columns": ["review"], "label_column": "verdict"}


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    tiny.save(tiny.knowing_teacher(4), tmp_path / "teacher")
    tiny.save(tiny.bert(1), tmp_path / "start")
    tiny.write_csv(tmp_path / "reviews.csv", 60)
    return tmp_path


def recipe_of(place: Path, **changes) -> Recipe:
    given = {"task": "reviews", "data": str(place / "reviews.csv"), "epochs": 2, **OWN}
    given |= {"teacher": str(place / "teacher"), "student.init": str(place / "start")}
    given |= {"cache": "always", "max_length": 24, "batch_size": 8, "checkpoint_steps": 3}
    return Recipe.load("kd", **(given | changes))


def killed_in_step(step: int, recipe: Recipe, folder: Path) -> None:
    class Killed(module.Display):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == step:
                raise tiny.KilledError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "Display", Killed)
        with pytest.raises(tiny.KilledError):
            distill(recipe, out=folder, report=False)


def killed_after(owner, name: str, recipe: Recipe, folder: Path) -> None:
    original = getattr(owner, name)

    def dying(*args, **kwargs):
        original(*args, **kwargs)
        raise tiny.KilledError

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, dying)
        with pytest.raises(tiny.KilledError):
            distill(recipe, out=folder, report=False)


@pytest.mark.parametrize(
    "kill",
    [
        "after storing",
        *(
            pytest.param(kill, marks=pytest.mark.slow)
            for kill in ("before a checkpoint", "after a checkpoint")
        ),
    ],
)
@pytest.mark.slow
def test_a_continued_run_has_paid_for_what_it_stored(kill, place, tmp_path):
    recipe, folder = recipe_of(place), tmp_path / "run"
    if kill == "after storing":  # and before anything was written of it
        killed_after(Store, "made", recipe, folder)
    else:
        killed_in_step(1 if kill == "before a checkpoint" else 5, recipe, folder)
    cost = distill(recipe, out=folder, report=False).record.cost
    for entry in default_store().entries():
        default_store().remove(entry)
    unbroken = distill(recipe, out=tmp_path / "unbroken", report=False).record.cost
    assert cost.teacher_flops == unbroken.teacher_flops > 0
    assert cost.student_flops == unbroken.student_flops


@pytest.mark.slow
def test_its_seconds_stay_too(place, tmp_path, monkeypatch):
    build = building.build

    def slow(folder, teacher, batches, *args, **kwargs):
        def waiting():
            time.sleep(0.5)
            yield from batches

        build(folder, teacher, waiting(), *args, **kwargs)

    recipe, folder = recipe_of(place), tmp_path / "run"
    for step in (1, 4, 9):  # before the first checkpoint, after it, and once more
        monkeypatch.setattr(building, "build", slow)
        killed_in_step(step, recipe, folder)
    (entry,) = default_store().entries()
    cost = distill(recipe, out=folder, report=False).record.cost
    assert cost.teacher_seconds >= entry.outputs.costs["seconds"] >= 0.5
    parts = [getattr(cost, name) for name in type(cost).model_fields if name.endswith("_seconds")]
    assert cost.total_seconds == pytest.approx(sum(parts) - cost.total_seconds)


@pytest.mark.slow
def test_a_run_that_found_what_another_stored_has_not_paid(place, tmp_path):
    distill(recipe_of(place), out=tmp_path / "a", report=False)
    folder = tmp_path / "b"
    killed_in_step(1, recipe_of(place, seed=7), folder)
    cost = distill(recipe_of(place, seed=7), out=folder, report=False).record.cost
    assert cost.teacher_flops == 0
    assert Record.load(folder).execution.stored == []
