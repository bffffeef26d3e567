"""Studies with several teachers of each task: who learns from whom, and a table of it."""

from __future__ import annotations

import pytest
from tiny_studies import plan_of

from limbeck.lab.study import SharedRuns, carry_out, estimate, study_table, write_study
from limbeck.lab.study.study_output import gather_results
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.tables.build import FLOOR
from limbeck.training import DistillationTrainer

TEAM = {"team": {"two": {"student.layers": 2}, "all": None}, "settings": {"lr": 0.0001}}
METHODS = """
  alone: {method: finetune, settings: {student.init: "{model}"}},
  by two: {method: kd-soft, teachers: [two]},
  SKD: {method: skd-uniform},
  SKD of one: {method: skd-uniform, teachers: [all]}
"""


def planned(place, folder, methods=METHODS, **more):
    given = {"teachers": TEAM, "table.baseline": "SKD", "seeds": [1]}
    return plan_of(place, folder, methods=methods, **given, **more)


def test_methods_learn_from_the_members_they_name(place, tmp_path) -> None:
    plan = planned(place, tmp_path)
    made = {run.label: run.name for run in plan.teachers.values()}
    assert list(made) == ["two", "all"]
    runs = {group.label: group.sample for group in plan.groups}
    assert {label: run.needs for label, run in runs.items()} == {
        "alone": (),
        "by two": (made["two"],),
        "SKD": (made["two"], made["all"]),
        "SKD of one": (made["all"],),
    }
    place_of = {name: str(tmp_path / name) for name in made.values()}
    assert runs["by two"].recipe(tmp_path).teacher == place_of[made["two"]]
    assert runs["SKD"].recipe(tmp_path).teachers == list(place_of.values())
    assert runs["SKD of one"].recipe(tmp_path).teachers == [place_of[made["all"]]]


def test_one_of_several_teachers_leads_and_alone_teaches_a_first_stage(place, tmp_path) -> None:
    rows = "SKD: {method: skd-uniform}, TD: {method: skd-td, lead: all}, free: {method: skd-td}"
    plan = planned(place, tmp_path, methods=rows, students={"student.init": "teacher"})
    two, everyone = (str(tmp_path / run.name) for run in plan.teachers.values())
    runs = {group.label: group.sample for group in plan.groups}
    led, free = runs["TD"].recipe(tmp_path), runs["free"].recipe(tmp_path)
    assert len({run.name for run in runs.values()}) == 3
    assert runs["TD"].needs == runs["free"].needs == runs["SKD"].needs
    assert (led.teachers, led.lead, free.lead) == ([two, everyone], everyone, two)
    first, last = (stage.recipe for stage in led.stages())
    assert (first.teacher, first.teachers, first.team) == (everyone, None, None)
    assert last.teachers == [two, everyone] and last.team.use == "sample"
    assert free.stages()[0].recipe.teachers == [two, everyone]
    wrong = "SKD: {method: skd-uniform, teachers: [two], lead: all}, kd-soft: {teachers: [two], lead: two}"
    with pytest.raises(LimbeckError, match=r"unknown teacher in methods.SKD.lead: 'all'"):
        planned(place, tmp_path, methods=wrong)
    with pytest.raises(LimbeckError, match="kd-soft learns from one teacher, which none leads"):
        planned(place, tmp_path, methods="SKD: {method: kd-soft, teachers: [two], lead: two}")


def test_a_run_waits_for_all_its_teachers(place, tmp_path) -> None:
    plan = planned(place, tmp_path)
    two, everyone = plan.teachers.values()
    runs = {group.label: group.sample for group in plan.groups}

    def due(*there):
        held = {run.name: object() for run in there}
        return {run.label for run in plan.due(held.get, held.__contains__)}

    assert due() == {"two", "all", "alone"}
    assert due(two) == {"all", "alone", "by two"}
    assert due(two, everyone) == {"alone", "by two", "SKD", "SKD of one"}
    assert runs["SKD"].lost({}.get, {two.name}.__contains__) == [two.name]


def test_what_is_wrong_with_a_team_is_said_together(place, tmp_path) -> None:
    wrong = "SKD: {method: skd-uniform, teachers: [three]}, all: {method: finetune}"
    with pytest.raises(LimbeckError) as caught:
        planned(place, tmp_path, methods=wrong)
    assert [problem.message for problem in caught.value.problems] == [
        "teachers.team: a member is called all as a method is",
        "unknown teacher in methods.SKD.teachers: 'three'",
    ]
    with pytest.raises(
        LimbeckError, match=r"pretrained is the full model .* and two of teachers.team has"
    ):
        planned(place, tmp_path, students={"student.init": "pretrained"})
    with pytest.raises(LimbeckError, match="SKD on reviews: kd-soft learns from one teacher"):
        planned(place, tmp_path, methods="SKD: {method: kd-soft}")


@pytest.mark.slow
def test_a_table_has_a_row_of_each_member_and_method(place, tmp_path) -> None:
    plan, runs = planned(place, tmp_path), SharedRuns(tmp_path / "runs", keep_students=False)
    assert estimate(plan, runs).runs == 6
    assert carry_out(plan, runs) == []
    table, _ = write_study(plan, runs, tmp_path / "out")
    assert plan.study.teachers is not None
    named = {*plan.study.methods, *plan.study.teachers.team, FLOOR}
    assert {row.label for row in table.rows} == named
    scores = {row.label: next(iter(row.cells.values())).mean for row in table.rows}
    assert None not in scores.values()
    assert {run.role for run in plan.teachers.values()} == {"teacher"}


@pytest.mark.parametrize(("data", "kind"), [("digits", None), ("folder", "image")])
def test_what_a_teacher_says_of_images_is_not_remembered(data, kind, tmp_path) -> None:
    """Each epoch shows them shifted otherwise; a teacher of rows of text would be loaded here."""
    given = {
        "data": data,
        "kind": kind,
        "task": "digits" if kind is None else "mine",
        "train_rows": 100,
    }
    recipe = Recipe.load("kd", teacher="gone", **given, **{"student.init": "resnet-8"})
    assert SharedRuns(tmp_path)._teacher(recipe) is None


# ---- teachers that are chosen ----


@pytest.mark.slow
def test_a_teacher_is_the_one_best_on_dev_of_a_grid(place, tmp_path) -> None:
    given = {"teachers.grid": {"lr": [0.0001, 0.02]}, "table.baseline": "kd", "seeds": [1]}
    plan = plan_of(place, tmp_path, methods="kd: ", **given)
    runs = SharedRuns(tmp_path / "runs")
    (chosen,) = plan.teachers.values()
    assert [run.settings["lr"] for run in chosen.tries] == [0.0001, 0.02]
    # Two teachers and a student; who is chosen is trained once.
    assert plan.count == 2 + 1
    assert estimate(plan, runs).runs == 3
    assert carry_out(plan, runs) == []
    scores = [runs.held(run.name).primary_score("dev") for run in chosen.tries]
    made = runs.held(chosen.name)
    best = chosen.tries[scores.index(max(scores))]
    assert made.recipe == runs.held(best.name).recipe
    assert made.primary_score("dev") == max(scores)
    weights = "student/model.safetensors"
    assert (runs.path / chosen.name / weights).read_bytes() == (
        runs.path / best.name / weights
    ).read_bytes()
    (taught,) = [group for group in plan.groups if group.label == "kd"]
    for run in taught.grid[0][1]:
        assert runs.held(run.name).recipe["teacher"] == str(runs.path / chosen.name)
    page = write_study(plan, runs, tmp_path / "out")[1].read_text(encoding="utf-8")
    assert "teacher teacher on reviews" in page and "lr=0.02: " in page
    results = gather_results(plan, runs)
    assert (results.tried, results.open) == (3, 0)
    assert estimate(plan, runs).held == 3
    # Run again: nothing is made, nor chosen anew.
    before = (runs.path / chosen.name / "record.json").stat().st_mtime_ns
    assert carry_out(plan, runs) == []
    assert (runs.path / chosen.name / "record.json").stat().st_mtime_ns == before


def test_a_member_may_have_a_grid_of_its_own_on_a_task(place, tmp_path) -> None:
    team = {"small": {"student.layers": 1}, "large": {}}
    study = {
        "teachers.team": team,
        "teachers.grid": {"lr": [0.01, 0.02]},
        "teachers.grids": {"large": {"reviews": {"lr": [0.001, 0.002, 0.003]}}},
    }
    methods = "plain: {method: finetune}, all: {method: wkd-uniform}"
    plan = plan_of(place, tmp_path, methods=methods, **study)
    tried = {run.label: [one.settings["lr"] for one in run.tries] for run in plan.teachers.values()}
    assert tried == {"small": [0.01, 0.02], "large": [0.001, 0.002, 0.003]}
    with pytest.raises(LimbeckError, match=r"teacher in teachers\.grids.*'huge'"):
        plan_of(place, tmp_path, **{"teachers.grids": {"huge": {"reviews": {"lr": [0.1]}}}})
    with pytest.raises(LimbeckError, match=r"teachers\.grid: seed has its own place"):
        plan_of(place, tmp_path, **{"teachers.grid": {"seed": [1, 2]}})


@pytest.mark.slow
def test_a_teacher_of_which_a_try_failed_is_chosen_among_the_others(
    place, tmp_path, monkeypatch
) -> None:
    given = {"teachers.grid": {"lr": [0.0001, 0.0002]}, "table.baseline": "kd", "seeds": [1]}
    plan = plan_of(place, tmp_path, methods="kd: ", **given)
    runs, (chosen,) = SharedRuns(tmp_path / "runs"), plan.teachers.values()
    train, broken = DistillationTrainer.start_or_continue, {chosen.tries[0].name}

    def fail(trainer, checkpoint):
        if any(name in trainer.args.output_dir for name in broken):
            raise RuntimeError("out of memory")
        return train(trainer, checkpoint)

    monkeypatch.setattr(DistillationTrainer, "start_or_continue", fail)
    (failed,) = carry_out(plan, runs)
    assert failed.name == chosen.tries[0].name
    assert runs.held(chosen.name).recipe == runs.held(chosen.tries[1].name).recipe
    # None of them has a score: whoever learns from it is named.
    broken |= {one.name for one in chosen.tries}
    nothing = SharedRuns(tmp_path / "nothing")
    said = [problem.message for outcome in carry_out(plan, nothing) for problem in outcome.problems]
    assert any("none of the 2 runs that were tried has a dev score" in one for one in said)
    table = study_table(plan, gather_results(plan, nothing))
    assert any("its teacher failed" in note for note in table.notes)
