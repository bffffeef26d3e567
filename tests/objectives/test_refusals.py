"""What makes no sense is refused before any work, each with its reason, all of it together."""

from __future__ import annotations

import pytest

from limbeck.objectives import ModelShape, Objectives, Shape
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState

SKIP = {"kind": "skip"}
RANDOM = {"kind": "random"}
ATTENTION = {"kind": "attention"}
BUCKETS = {"kind": "buckets"}


def shape(teacher: tuple[int, int] = (12, 16), student: tuple[int, int] = (4, 8)) -> Shape:
    """(layers, width) of both."""
    return Shape(ModelShape(*student, heads=2), ModelShape(*teacher, heads=2))


def recipe(**term: object) -> Recipe:
    return Recipe.load("kd", **{"objectives.layers": term})


def problems_of(recipe: Recipe, models: Shape) -> list[str]:
    with pytest.raises(LimbeckError) as caught:
        Objectives(recipe.loss, models)
    assert all(problem.fix for problem in caught.value.problems)
    return [problem.message for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        ({"compare": "mse", "mapping": SKIP}, "mse compares sentence vectors"),
        ({"compare": "normalized_mse", "mapping": SKIP}, "need `pool`: cls, mean or last"),
        ({"compare": "hidden_mse", "pool": "cls", "mapping": SKIP}, "compares every token"),
        ({"compare": "hidden_mse", "mapping": ATTENTION}, "weighs layers by sentence vectors"),
        (
            {"compare": "mse", "pool": "cls", "mapping": ATTENTION, "project": {"to": 4}},
            "set project.share to all",
        ),
        (
            {
                "compare": "mse",
                "pool": "cls",
                "mapping": ATTENTION,
                "compare_layers": "joined",
                "project": {"to": 4, "share": "all"},
            },
            "leave `compare_layers` or `project` out",
        ),
        (
            {
                "compare": "mse",
                "pool": "cls",
                "mapping": BUCKETS | {"combine": "costs"},
                "compare_layers": "joined",
            },
            "combine: costs keeps them apart",
        ),
        (
            {
                "compare": "mse",
                "pool": "cls",
                "mapping": RANDOM,
                "compare_layers": "joined",
                "pairs": "mean",
            },
            "`pairs` has no effect",
        ),
        (
            {
                "compare": "mse",
                "pool": "cls",
                "mapping": RANDOM,
                "compare_layers": "joined",
                "project": {"to": 4, "share": "all"},
            },
            "`project.share` has no effect",
        ),
        (
            {"compare": "mse", "pool": "cls", "mapping": SKIP | {"teacher_layers": "1..6"}},
            "unknown key in objectives.layers.mapping: 'teacher_layers'",
        ),
        (
            {"compare": "mse", "pool": "cls", "mapping": {"kind": "explicit", "layers": {1: []}}},
            "layers.1: Input should be a valid integer (got []); or: List should have at least 1 item",
        ),
        ({"compare": "soft_kl", "temperature": 0}, "greater than or equal to 0.001"),
        ({"compare": "hard_label", "temperature": 2}, "unknown key in objectives.layers: 'temp"),
    ],
)
def test_a_term_that_makes_no_sense_is_refused_with_the_reason(term, reason):
    with pytest.raises(LimbeckError) as caught:
        recipe(**term)
    (problem,) = caught.value.problems
    assert reason in problem.message
    assert "objectives.layers" in problem.message
    assert problem.fix


MSE = {"compare": "mse", "pool": "cls"}


@pytest.mark.parametrize(
    ("term", "models", "reason"),
    [
        (MSE | {"mapping": SKIP}, shape(), "are 8 wide and the teacher's 16"),
        # One side mapped, but not to where the other is.
        (
            MSE | {"mapping": SKIP, "project": {"to": 32, "sides": "student"}},
            shape(),
            "are 32 wide and the teacher's 16",
        ),
        (
            MSE | {"mapping": SKIP, "project": {"to": 32, "sides": "teacher"}},
            shape(student=(4, 16)),
            "are 16 wide and the teacher's 32",
        ),
        # Equal models, but four teacher layers side by side.
        (
            MSE | {"mapping": BUCKETS | {"combine": "concat"}},
            shape(student=(4, 16)),
            "are 16 wide and the teacher's 64",
        ),
        (
            MSE
            | {
                "mapping": BUCKETS | {"combine": "concat"},
                "project": {"to": "student", "sides": "teacher", "when": "widths-differ"},
            },
            shape(student=(4, 16)),
            "are 16 wide and the teacher's 64",
        ),
        # Joined, the student's three layers are 24 wide, not 8.
        (
            MSE
            | {
                "mapping": RANDOM,
                "compare_layers": "joined",
                "project": {"to": "student", "sides": "teacher"},
            },
            shape(),
            "are 24 wide and the teacher's 8",
        ),
        (
            MSE
            | {
                "mapping": BUCKETS | {"combine": "concat"},
                "project": {"to": 8, "share": "all"},
            },
            shape(student=(6, 8)),
            "side by side are 48, 48, 32, 32, 32 wide",
        ),
        (MSE | {"mapping": {"kind": "explicit", "layers": {1: 13}}}, shape(), "no layer 13"),
        (MSE | {"mapping": {"kind": "explicit", "layers": {5: 1}}}, shape(), "no layer 5"),
        (MSE | {"mapping": SKIP}, shape(student=(1, 16)), "is empty: the student has 1 layer"),
        (MSE | {"mapping": RANDOM}, shape((2, 8)), "need as many teacher layers"),
        (
            MSE | {"mapping": ATTENTION | {"teacher_layers": "1..L-1"}},
            shape((1, 8)),
            "is empty: the teacher has 1 layer",
        ),
    ],
)
def test_what_these_models_cannot_do_is_refused_with_the_reason(term, models, reason):
    (message,) = problems_of(recipe(**term), models)
    assert message.startswith("objectives.layers")
    assert reason in message


@pytest.mark.parametrize(
    "project",
    [
        {"to": 128},
        {"to": "teacher", "sides": "student"},
        {"to": "student", "sides": "teacher"},
        {"to": 8, "sides": "teacher"},
        {"to": 128, "share": "all", "when": "widths-differ"},
    ],
)
def test_what_brings_both_to_one_width_is_accepted(project):
    Objectives(recipe(**MSE, mapping=SKIP, project=project).loss, shape())


def test_a_layer_named_twice_counts_once():
    mapping = {"kind": "explicit", "layers": {1: [4, 2, 4]}}
    objectives = Objectives(recipe(**MSE, mapping=mapping, project={"to": 4}).loss, shape())
    layers = objectives["layers"]
    assert layers.active_layers(StepState()) == [[1, 2], [1, 4]]


@pytest.mark.parametrize("name", ["a.b", "values", "loss"])
def test_a_name_that_is_taken_is_refused(name):
    kd = Recipe.load("kd").objectives
    (message,) = problems_of(
        Recipe.load("kd").model_copy(update={"objectives": {name: kd["hard"]}}), shape()
    )
    assert f"objectives.{name}" in message


def test_several_problems_are_reported_together():
    wrong = Recipe.load(
        "kd",
        **{
            "objectives.wide": MSE | {"mapping": SKIP},
            "objectives.deep": MSE | {"mapping": {"kind": "explicit", "layers": {1: 13}}},
            "objectives.fine": MSE | {"mapping": SKIP, "project": {"to": 4}},
        },
    )
    messages = problems_of(wrong, shape())
    assert [message.split(":")[0] for message in messages] == [
        "objectives.wide",
        "objectives.deep.mapping.layers",
    ]
