"""Seconds of a whole run from those of one batch, by hand."""

from __future__ import annotations

import time

import pytest
import torch

from limbeck.lab.study.measured_step import StepCost, _clock, _median
from limbeck.recipe import Recipe
from limbeck.support.words import count_of


def cost(train: float, forward: float, batch: int = 10) -> StepCost:
    return StepCost(train, forward, 0.5, batch, 1000, 100, 1, "cpu")


def recipe(method: str, **keys) -> Recipe:
    return Recipe.load(method, **{"data": "glue", "task": "sst2", "student.init": "x", **keys})


def test_each_stage_has_rows_and_passes_of_its_own() -> None:
    # 100 batches of the task, scored once and at the end: 10 batches of dev each.
    one = recipe("kd", teacher="T", epochs=1, batch_size=10)
    assert cost(2.0, 1.0).seconds(one) == 100 * (2 + 0.5) + 2 * 10 * 1
    two = recipe("l-ild", teacher="T", epochs=1, **{"first_stage.epochs": 3})
    assert cost(2.0, 1.0).seconds(two) == 400 * 2.5 + 20
    other = recipe(
        "l-ild",
        teacher="T",
        epochs=1,
        **{"first_stage.epochs": 3, "first_stage.corpus": {"source": "pocket", "size": 50}},
    )
    assert cost(2.0, 1.0).seconds(other) == (100 + 3 * 5) * 2.5 + 20


@pytest.mark.parametrize(
    ("method", "seconds"),
    [
        # 100 batches; teachers of 1 and 3 seconds a batch, one of them a step or both.
        ("skd-uniform", 100 * (2 + 2) + 20),
        ("wkd-uniform", 100 * (2 + 4) + 20),
        # The larger one distils the smaller one first.
        ("takd", 100 * (2 + 2) + 20 + 100 * (4 + 3)),
        # A student of each, as long as the run.
        ("skd-student-rank", 3 * (100 * (2 + 2) + 20)),
        ("skd-best-of", 5 * (100 * (2 + 2) + 20)),
    ],
)
def test_a_team_teaches_as_its_use_says(method, seconds) -> None:
    keys = {"team.student_epochs": 1} if method in ("skd-student-rank", "skd-best-of") else {}
    team = recipe(method, teachers=["A", "B"], epochs=1, batch_size=10, **keys)
    teachers = [cost(9.0, 1.0), cost(4.0, 3.0)]
    assert cost(2.0, 1.0).seconds(team, teachers) == pytest.approx(seconds)


def test_one_is_not_several() -> None:
    assert (count_of(1, "task"), count_of(2, "seed")) == ("1 task", "2 seeds")


def test_time_that_others_have_the_core_is_not_counted() -> None:
    # Asleep, as while another process runs in its place.
    clock = _clock(torch.device("cpu"))
    assert _median(lambda: time.sleep(0.03), clock) < 0.01
    assert _median(lambda: time.sleep(0.03), time.perf_counter) >= 0.03
