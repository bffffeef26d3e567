"""Which task types take rows without labels, and what those that do not say instead."""

from __future__ import annotations

import pytest

from limbeck.recipe import Recipe
from limbeck.run.rows import add_unlabelled
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASK_TYPES, Task, get_task_type
from limbeck.tasks.abstract_type import no_unlabelled

REFUSED = {
    "embedding": ("rows need no labels", "--data"),
    "masked": ("rows need no labels", "--data"),
    "causal-lm": ("rows need no labels", "--data"),
    "image": ("folders that are their labels", "folders of their classes"),
    "text": ("decoder reads the label's word", "limbeck predict"),
    "tokens": ("losses look is known from the labels", "limbeck predict"),
    "spans": ("losses look is known from the labels", "limbeck predict"),
}


def test_those_with_a_class_a_number_or_a_score_for_a_text_take_them():
    known = {name for name in TASK_TYPES if no_unlabelled(get_task_type(name)) is None}
    assert known == {*TASK_TYPES} - {*REFUSED}


@pytest.mark.parametrize("kind", REFUSED)
def test_the_others_say_what_is_true_of_them(kind):
    task = Task("mine", "mine", ("sentence",), (), (), "", kind=get_task_type(kind))
    recipe = Recipe.load("kd").model_copy(update={"unlabelled": ["more.txt"]})
    why, instead = REFUSED[kind]
    with pytest.raises(LimbeckError, match=f"(?s)is of kind {kind}: .*{why}.*{instead}"):
        add_unlabelled(recipe, task, {})
