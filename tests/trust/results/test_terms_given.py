"""Terms given to a trainer: settings as in a recipe, and nothing else without a word."""

from __future__ import annotations

import own_rows as own
import pytest
from torch import nn

import tiny_runs as tiny
from limbeck.objectives import HardSpec, SoftSpec
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationTrainer


def build(folder, teacher=None, **changes) -> DistillationTrainer:
    settings = {"train_dataset": own.sentences(), "data_collator": own.OwnCollator()}
    return tiny.trainer_of(
        own.bert(2),
        own.arguments(folder),
        teacher=own.bert(4, 1) if teacher is None else teacher,
        **(settings | changes),
    )


def test_plain_settings_are_what_a_recipe_says(tmp_path):
    plain = {
        "soft": {"compare": "soft_kl", "temperature": 4, "weight": "1/3"},
        "hard": {"compare": "hard_label", "weight": {"end": 0.5, "over": 1}},
        "layer": {
            "compare": "hidden_mse",
            "mapping": {"kind": "last-to-last"},
            "project": {"to": "teacher", "sides": "student"},
        },
    }
    made = build(tmp_path, objectives=plain)
    assert made.objectives["soft"].rule.temperature == 4
    assert made.objectives.weights["soft"] == pytest.approx(1 / 3)
    made.train()
    assert own.terms_by_part(made.state.log_history) == {"": {"soft", "hard", "layer"}}
    file = tmp_path / "same.yaml"
    file.write_text(Recipe.load("kd", **{f"objectives.{n}": s for n, s in plain.items()}).to_yaml())
    again = build(tmp_path / "again", method=file)
    again.train()
    logged = [[e["loss"] for e in t.state.log_history if "loss" in e] for t in (made, again)]
    assert logged[0] == logged[1]


def test_settings_and_their_classes_go_together(tmp_path):
    given = {"soft": SoftSpec(compare="soft_kl"), "hard": {"compare": "hard_label"}}
    assert build(tmp_path, objectives=given).plan.last.objectives == {
        "soft": SoftSpec(compare="soft_kl"),
        "hard": HardSpec(compare="hard_label"),
    }


@pytest.mark.parametrize("term", [nn.Linear(2, 2), nn.MSELoss(), 3, "soft_kl", None, lambda: 0])
def test_what_is_no_settings_is_named(tmp_path, term):
    with pytest.raises(LimbeckError) as caught:
        build(tmp_path, objectives={"soft": {"compare": "soft_kl"}, "mine": term})
    (problem,) = caught.value.problems
    assert problem.message.startswith(f"objectives.mine: {type(term).__name__} is")
    assert "soft_kl" in problem.fix


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({}, "objectives: none are given"),
        ({"x": {"compare": "soft_lk"}}, "objectives.x"),
        ({"x": {"compare": "soft_kl", "temprature": 2}}, "temprature"),
        ({"x": {"compare": "soft_kl", "temperature": -1}}, "objectives.x.temperature"),
        ({"x": {"weight": 2}}, "objectives.x"),
    ],
)
def test_settings_are_checked_like_a_recipes(tmp_path, terms, words):
    with pytest.raises(LimbeckError) as caught:
        build(tmp_path, objectives=terms)
    assert words in str(caught.value)


def test_a_curriculum_or_mixup_beside_a_method_is_refused(tmp_path):
    with pytest.raises(LimbeckError, match="mixup: read with objectives= only"):
        build(tmp_path, method="kd-soft", mixup={"alpha": 1})


def test_a_curriculum_and_mixup_may_be_plain_too(tmp_path):
    made = build(
        tmp_path,
        objectives={
            "layers": {
                "compare": "cosine_distance",
                "pool": "cls",
                "mapping": {"kind": "uniform", "student_layers": "1..M"},
            },
            "soft": {"compare": "soft_kl"},
        },
        curriculum={"terms": ["layers"], "order": "progressive", "wait": ["soft"]},
        mixup={"alpha": 2, "partner": "reversed"},
    )
    made.train()
    assert made.transform.spec.alpha == 2
    assert made.objectives.curriculum.layers == (1, 2)


# ---- who teaches ----


@pytest.mark.parametrize(
    ("method", "teacher", "words"),
    [
        ("kd", "runs/teacher", "reads no models by name"),
        ("kd", nn.Linear(2, 2), "is no model"),
        ("kd", [], "is no model"),
        ("kd", [own.bert(2), own.bert(3)], "2 are given, and kd learns from one"),
        (
            Recipe.load("skd-uniform", **{"team.by": [1, 2, 3]}),
            [own.bert(2), own.bert(3)],
            "3 numbers for 2 teachers",
        ),
    ],
)
def test_teachers_that_do_not_fit_are_refused(tmp_path, method, teacher, words):
    with pytest.raises(LimbeckError) as caught:
        build(tmp_path, teacher, method=method)
    assert words in str(caught.value)


@pytest.mark.parametrize("method", ["skd-teacher-rank", "skd-student-rank", "wkd-teacher-rank"])
def test_ranks_need_something_to_score_on(tmp_path, method):
    with pytest.raises(LimbeckError, match="nothing to score on") as caught:
        build(tmp_path, [own.bert(2), own.bert(3)], method=method)
    assert "eval_dataset=" in str(caught.value)


def test_the_methods_own_dropout_of_the_teacher_is_kept(tmp_path):
    assert build(tmp_path, method="tinybert-released").teacher.dropout
    assert not build(tmp_path, method="tinybert").teacher.dropout


# ---- the first stage ----


def test_a_first_stage_has_its_own_settings(tmp_path):
    from limbeck.training.method import first_stage_arguments

    given = {"epochs": 2, "lr": "1e-4", "batch_size": 6, "objectives": {"embedding": None}}
    made = build(tmp_path, method="tinybert", first_stage=given)
    args = first_stage_arguments(made.plan.recipe, made.args)
    assert (args.num_train_epochs, args.learning_rate, args.max_steps) == (2, 1e-4, -1)
    assert args.per_device_train_batch_size == 6
    assert args.eval_strategy == "no"
    assert made.args.max_steps == 2  # the user's own are left alone
    made.train()
    assert own.terms_by_part(made.state.log_history) == {
        "first_stage": {"attention", "hidden"},
        "": {"soft"},
    }
    assert max(e["step"] for e in made.state.log_history if "part" in e) == 4


def test_a_first_stage_may_have_rows_and_a_teacher_of_its_own(tmp_path):
    other = own.sentences().select(range(4)).remove_columns("label")
    made = build(
        tmp_path,
        method="tinybert",
        first_stage={"train_dataset": other, "teacher": own.bert(6, 2), "epochs": 1},
    )
    made.train()
    (first,) = made.parts
    assert max(entry["step"] for entry in first.log_history) == 1


@pytest.mark.parametrize(
    ("method", "first", "words"),
    [
        ("kd", {"epochs": 1}, "first_stage: method kd has no first stage"),
        ("tinybert", {"epoch": 1}, "unknown key in first_stage 'epoch'"),
        ("tinybert", {"lr": -1}, "first_stage.lr"),
        (
            Recipe.load("u-ild", **{"first_stage.task": "mnli"}),
            None,
            "reads no rows or models by name",
        ),
        (
            Recipe.load("u-ild", **{"first_stage.teacher": "t"}),
            None,
            "reads no rows or models by name",
        ),
        (
            Recipe.load("u-ild", **{"first_stage.train_rows": 9}),
            None,
            "reads no rows or models by name",
        ),
    ],
)
def test_a_first_stage_that_cannot_be_is_refused(tmp_path, method, first, words):
    with pytest.raises(LimbeckError) as caught:
        build(tmp_path, method=method, first_stage=first)
    assert words in str(caught.value)


def test_terms_of_the_first_stage_are_checked_before_any_work(tmp_path):
    with pytest.raises(LimbeckError, match=r"first_stage\.objectives\.attention.*attention heads"):
        build(tmp_path, own.bert(4, 1, num_attention_heads=4), method="tinybert")


def test_both_stages_may_be_one(tmp_path):
    made = build(tmp_path, method=Recipe.load("tinybert", joint=True))
    made.train()
    assert not made.parts
    assert own.terms_by_part(made.state.log_history) == {
        "": {"attention", "hidden", "embedding", "soft"}
    }
