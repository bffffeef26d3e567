"""What is said of a wrong value in a recipe: which values would be right, and where the fault is."""

from __future__ import annotations

import pytest

from limbeck.cli.options import SETTINGS
from limbeck.recipe import Recipe
from limbeck.recipe.validation import _FLAGS
from limbeck.support.errors import LimbeckError, Problem


def problems_of(**settings: object) -> list[Problem]:
    with pytest.raises(LimbeckError) as caught:
        Recipe.load("kd", **({"task": "mrpc"} | settings))
    return caught.value.problems


def term(**settings: object) -> dict[str, object]:
    return {"soft": {"compare": "soft_kl"} | settings}


@pytest.mark.parametrize(
    ("setting", "value", "fix"),
    [
        ("missing_outputs", "skip", "choices: error, drop"),
        ("missing_outputs", "dropp", "did you mean 'drop'? choices: error, drop"),
        ("unlabelled_duplicates", "keep", "choices: refuse, drop"),
        ("min_confidence", 1.5, "give another value: lowest teacher probability"),
        ("labelled_share", 2, "give another value: share of labeled examples in each batch"),
        ("unlabelled_weight", "nan", "give another value: weight of an example without a label"),
        ("seed", 1.5, "give another value: seed of initialization"),
        ("lr", "1/0", "give another value: peak learning rate"),
        ("thresholds", 3, "choices: one, by_class; or: give another value: several labels per row"),
        ("compile", 1, "give another value: compile the training passes"),
        ("text_columns", 3, "give another value: your own data: one or two text columns"),
        ("augment", {"model": "m", "examples": "1,2"}, "give another value"),
        ("outputs", [], "give another value: stored teacher outputs"),
        ("student", ["a"], "give another value"),
        ("team", {"use": "chains"}, "did you mean 'chain'? choices: sample, ensemble, chain"),
        ("team", {"rate": 1}, "set one: team.use=…"),
        ("objectives", term(weight={"start": -1, "end": 1, "over": 1}), "give another value: weight at the first step"),
        ("objectives", term(weight={"end": 1}), "add it: share of all optimization steps the ramp takes"),
        ("objectives", {"soft": {"weight": 1}}, "set its comparison: {compare: soft_kl}"),
        ("example_weights", {"use": "llkd", "momentum": 3}, "give another value: "),
        ("images", {"size": 4, "crop": 8}, "give another value: image size, cropping"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_the_right_ones(setting, value, fix):
    (problem,) = problems_of(**{setting: value})
    assert problem.message.startswith(setting)
    assert problem.fix.startswith(fix)


@pytest.mark.parametrize(
    ("given", "choices"),
    [
        ({"example_weights": {"foo": "confidence"}}, "choices: use"),
        ({"example_weights": {"use:foo": None}}, "did you mean 'use'? choices: use"),
        ({"example_weights": {"use": "confidence", "momentum": 2}}, "choices: use"),
        ({"example_weights": {"use": "llkd", "speed": 2}}, "choices: use, momentum"),
        ({"input_transform": {"foo": 1}}, "choices: use"),
        ({"mixup": {"foo": 1}}, "choices: alpha, partner, at, dominant"),
        ({"team": {"use": "ensemble", "foo": 1}}, "student_epochs, use, by"),
        ({"first_stage.corpus": {"foo": 1}}, "choices: source, pairs"),
        ({"objectives.soft.weight": {"foo": 1}}, "choices: start, end, over, by"),
    ],
)
def test_an_unknown_key_is_told_those_of_its_group(given, choices):
    key = next(key for value in given.values() for key in value if key != "use")
    first = problems_of(**given)[0]
    assert first.message == f"unknown key in {next(iter(given))}: {key!r}"
    assert choices in first.fix


def test_weights_without_their_name_are_told_the_names():
    _, problem = problems_of(example_weights={"foo": "confidence"})
    assert problem.message.startswith("example_weights.use: ")
    assert problem.fix == "add it: confidence, llkd, or a way that you have registered"


@pytest.mark.parametrize("given", ["foo", {"use": "foo"}])
def test_an_unknown_weighting_is_said_once(given):
    (problem,) = problems_of(example_weights=given)
    assert problem.message == "unknown example_weights.use: 'foo'"
    assert problem.fix == "choices: confidence, llkd"


# ---- names of classes ----


@pytest.mark.parametrize("setting", ["classes", "output_classes"])
def test_whole_numbers_are_names_of_classes(setting):
    recipe = Recipe.load("kd", task="mrpc", outputs=["store"], **{setting: [0, 1]})
    assert getattr(recipe, setting) == ["0", "1"]
    assert problems_of(**{setting: [True, False]})


@pytest.mark.parametrize("given", ["negative,positive", ["negative,positive"]])
@pytest.mark.parametrize("setting", ["classes", "output_classes"])
def test_names_in_one_word_are_told_how_they_are_written(setting, given):
    (problem,) = problems_of(outputs=["store"], **{setting: given})
    flag = setting.replace("_", "-")
    assert f"(--{flag} negative positive) or as {setting}='[negative, positive]'" in problem.fix


def test_options_that_are_advised_are_there():
    assert all(SETTINGS[name] == name for name in _FLAGS)
