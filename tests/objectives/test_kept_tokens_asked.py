"""A term that reads a part of a teacher's vocabulary asks its teacher for that part, and its student for all."""

from __future__ import annotations

import pytest
from tiny_pairs import t5

from limbeck.activations import Request
from limbeck.functional.partial_logits import KeptTokens
from limbeck.objectives import ModelShape, Objectives, Shape
from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.tasks import get_task_type

TOP = KeptTokens("top", 3, 2.0)


def terms(kind: str = "text", **settings) -> Objectives:
    recipe = Recipe.load("kd-soft", kind="text", **settings)
    sides = ModelShape.of(t5(2, 8, 1)), ModelShape.of(t5(3, 8, 0))
    shape = Shape(*sides, kind=get_task_type(kind), rows=8)
    return Objectives(recipe.loss, shape)


def test_the_teacher_is_asked_for_what_is_kept_and_the_student_for_all():
    own = terms(**{"objectives.soft.tokens": "top3", "objectives.soft.temperature": 2.0})
    assert own.request("teacher", StepState()) == Request.of_logits(TOP)
    assert own.request("student", StepState()) == Request.of_logits()


def test_who_asks_for_all_or_for_others_is_given_all():
    kept, other, everything = (
        Request.of_logits(tokens) for tokens in (TOP, KeptTokens("top", 4, 2.0), None)
    )
    assert kept | kept == kept | Request.hidden([]) == kept
    assert kept | other == kept | everything == everything


def test_a_weight_of_unlabelled_examples_needs_examples_that_may_be_unlabelled():
    with pytest.raises(LimbeckError, match="task type text cannot mix labeled and unlabeled rows"):
        terms(unlabelled_weight=0.5)
