"""A row of a study may be the best of several methods on dev, for each task by itself."""

from __future__ import annotations

import pytest

from limbeck.lab.study import StudyPlan, load_study
from limbeck.records import Record
from limbeck.support.errors import LimbeckError

STUDY = """
title: t
data: pocket
model: pocket
tasks: [sst2, cola]
seeds: [1, 2]
teachers: {{}}
students: {{student.init: teacher, student.layers: 2}}
methods: {methods}
"""


def plan_of(tmp_path, methods: str, more: str = "") -> StudyPlan:
    path = tmp_path / "mine.yaml"
    path.write_text(STUDY.format(methods=methods) + more, encoding="utf-8")
    return StudyPlan.of(load_study(path))


def scored(dev: float) -> Record:
    return Record(
        kind="distill",
        method="kd",
        task="t",
        data="d",
        seed=1,
        status="finished",
        scores={"dev": {"primary": dev}},
    )


def test_the_method_best_on_dev_is_the_rows_on_each_task(tmp_path) -> None:
    plan = plan_of(tmp_path, "{plain: {method: finetune}, best: {grid: {method: [kd, pkd-skip]}}}")
    alone = plan_of(tmp_path, "{kd: , pkd-skip: }")
    assert plan.count == 2 * (1 + 2 + 2 + 1)
    held = {run.name: scored(0) for run in plan.teachers.values()}
    chosen = {}
    for group in (one for one in plan.groups if one.label == "best"):
        better = {"sst2": "kd", "cola": "pkd-skip"}[group.task]
        for cell, runs in group.tried:
            assert [run.method for run in runs] == [cell["method"]] * 2
            assert "method" not in runs[0].settings
            held[runs[0].name] = scored(80 if cell["method"] == better else 70)
        choice = plan.choice(group, held.get, held.__contains__)
        assert choice.settings == {"method": better}
        chosen[group.task] = [run.name for run in choice.runs]
        # The same run as in a study where that method is a row of its own.
        (own,) = [g for g in alone.groups if (g.label, g.task) == (better, group.task)]
        assert chosen[group.task] == [run.name for run in own.grid[0][1]]
    due = [run.name for run in plan.due(held.get, held.__contains__) if run.label == "best"]
    assert due == [chosen["sst2"][1], chosen["cola"][1]]


def test_a_method_that_is_chosen_has_its_own_teachers(tmp_path) -> None:
    team = "teachers: {team: {A: {student.init: pocket-2-32-2}, B: {student.init: pocket-4-32-2}}}"
    row = "{one: {method: kd, teachers: [A]}, best: {grid: {method: [skd-uniform, mt-bert]}}}"
    path = tmp_path / "mine.yaml"
    text = STUDY.format(methods=row).replace("teachers: {}", team)
    path.write_text(text.replace("student.init: teacher", "student.init: pocket"), encoding="utf-8")
    plan = StudyPlan.of(load_study(path))
    (group,) = [one for one in plan.groups if (one.label, one.task) == ("best", "sst2")]
    wanted = tuple(plan.teachers[f"sst2 {member}"].name for member in "AB")
    assert [runs[0].needs for _, runs in group.grid] == [wanted, wanted]
    assert all(runs[0].team for _, runs in group.grid)


@pytest.mark.parametrize(
    ("methods", "more", "said"),
    [
        (
            "{best: {method: kd, grid: {method: [kd-soft]}}}",
            "",
            "method and grid.method are both given",
        ),
        ("{kd: }", "select: {grid: {method: [kd]}}", "select.grid: method has its own place"),
        ("{kd: }", "axes: {method: [kd]}", "axes: method has its own place"),
        ("{best: {grid: {method: [kd, kdd]}}}", "", "unknown method 'kdd'"),
    ],
)
def test_methods_that_cannot_be_chosen_are_refused(tmp_path, methods, more, said) -> None:
    with pytest.raises(LimbeckError, match=said):
        plan_of(tmp_path, methods, more)
