"""Settings of another type, out of their range or given twice are refused, and named."""

import pytest

from limbeck.cli.options import merge
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError


def problems_of(recipe="kd", **settings) -> list[str]:
    with pytest.raises(LimbeckError) as caught:
        Recipe.load(recipe, **({"task": "mrpc"} | settings))
    assert all(problem.fix for problem in caught.value.problems)
    return [problem.message for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("epochs: yes", "epochs: "),
        ("epochs: true", "epochs: "),
        ("epochs: .inf", "epochs: inf"),
        ("epochs: 1e300", "epochs: "),
        ("epochs: '3'", "epochs: "),
        ("seed: 1:30", "seed: "),
        ("seed: 1.0", "seed: "),
        ("seed: -1", "seed: "),
        ("seed: 4294967296", "seed: "),
        ("seed: 010", "seed: "),
        ("batch_size: 1.5", "batch_size: "),
        ("batch_size: true", "batch_size: "),
        ("lr: 010", "lr: "),
        ("lr: 1/0", "lr: "),
        ("lr: 1e999999999/1", "lr: "),
        ("lr: nan", "lr: "),
        ("compile: 1", "compile: "),
        ("compile: yes", "compile: "),
        ("workers: 5000", "workers: "),
        ("student: {init: [a]}", "student.init: "),
        ("student: {layers: three}", "student.layers: "),
        ("student: {layers: -1}", "student.layers: "),
        ("student: {layers: 0}", "student.layers: "),
        ("student: {layers: [1, -1]}", "student.layers.1: "),
        ("student: [a]", "student: "),
        ("student: {layers: 2, layers: 3}", "'layers' occurs twice"),
        ("text_columns: 3", "text_columns: "),
        ("task: [a]", "task: "),
        ("data: 3", "data: "),
        ("objectives: {soft: {weight: 1e400}}", "inf is no finite number"),
        ("objectives: {hard: {weight: -1}}", "objectives.hard.weight: "),
        ("objectives: {soft: {weight: {start: -1, end: 1, over: 1}}}", "objectives.soft.weight"),
        ("objectives: {soft: {temperature: .inf}}", "inf is no finite number"),
        ("objectives: {soft: {scale_by_t2: 1}}", "objectives.soft.scale_by_t2: "),
        ("team: {use: sample, by: adaptive, holdout: yes}", "team.holdout: "),
        ("first_stage: {epochs: yes}", "first_stage.epochs: "),
    ],
)
def test_a_value_of_another_type_or_range(tmp_path, line, named):
    own = tmp_path / "own.yaml"
    own.write_text(f"method: kd\n{line}\n", encoding="utf-8")
    settings = {} if line.startswith("task") else {"task": "mrpc"}
    with pytest.raises(LimbeckError) as caught:
        Recipe.load(own, **settings)
    assert named in str(caught.value)


def test_numbers_of_every_usual_form(tmp_path):
    own = tmp_path / "own.yaml"
    own.write_text("method: kd\nlr: 5e-5\nepochs: 3\nwarmup: .1\nweight_decay: 1/100\n")
    with pytest.raises(LimbeckError, match="weight_decay"):
        Recipe.load(own, task="mrpc")
    own.write_text("method: kd\nlr: 1/20000\nepochs: 3\nwarmup: .1\nweight_decay: 1e-2\n")
    recipe = Recipe.load(own, task="mrpc")
    assert (recipe.lr, recipe.epochs, recipe.weight_decay) == (5e-5, 3.0, 0.01)


@pytest.mark.parametrize("settings", [("student", "student.layers"), ("student.layers", "student")])
def test_a_setting_of_a_group_counts_in_any_order(settings):
    given = {"student": {"init": "x", "layers": 2}, "student.layers": 3}
    kept = Recipe.load("kd", task="mrpc", **{name: given[name] for name in settings})
    assert (kept.student.init, kept.student.layers) == ("x", 3)


def test_text_that_cannot_be_written_down():
    assert "cannot be written as UTF-8" in problems_of(teacher="runs/\udcff")[0]


@pytest.mark.parametrize("given", ["student=1:30", "student=-1", "student={init: other}"])
def test_a_flag_does_not_hide_the_group_that_was_given(given):
    with pytest.raises(LimbeckError, match=r"--student one and student=.* disagree"):
        merge({"student": "one"}, [given])
    assert merge({"student": "one"}, ["student={init: one}"])["student.init"] == "one"
    assert merge({"student": "one"}, ["student={layers: 2}"])["student.init"] == "one"
