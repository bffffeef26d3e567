"""A transform that the package does not know: registered, named in a recipe, checked, trained with."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from pydantic import Field
from tiny_trainers import make, steps_logged

from limbeck.input_transforms import (
    INPUT_TRANSFORMS,
    InputTransform,
    ModelPass,
    TransformSettings,
)
from limbeck.recipe import Recipe
from limbeck.recipe.validation import check
from limbeck.support.errors import LimbeckError, Problem


class HideSettings(TransformSettings):
    use: Literal["hide-end"]
    tokens: int = Field(1, gt=0)


class HideLast(InputTransform):
    """The student does not see the last tokens of a batch; the teacher does."""

    name = "hide-end"
    settings = HideSettings
    needs_token_ids = True

    def capture(self, asked: ModelPass, sampled: None):
        if asked.side == "teacher":
            return asked.plain()
        mask = asked.batch["attention_mask"].clone()
        mask[:, -self.spec.tokens :] = 0
        return asked.run({**asked.batch, "attention_mask": mask}, asked.request)

    def problems(self, batch, models):
        note = Problem(f"hide-end: {len(models)} models", "", "note")
        return [*super().problems(batch, models), note]


@pytest.fixture(autouse=True)
def registered():
    """Known to these tests alone."""
    INPUT_TRANSFORMS.register("hide-end")(HideLast)
    yield
    del INPUT_TRANSFORMS._known["hide-end"]


def test_it_is_a_recipe_s_own_and_is_written_with_it():
    recipe = Recipe.load("kd", input_transform={"use": "hide-end", "tokens": 2})
    assert isinstance(recipe.transform, HideLast) and recipe.transform.spec.tokens == 2
    raw = recipe.model_dump(mode="json")
    assert raw["input_transform"] == {"use": "hide-end", "tokens": 2}
    assert check(raw, Recipe, known_tasks=()) == recipe
    assert recipe.groups_by_length


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"use": "hide-edn"}, "did you mean 'hide-end'"),
        ({"use": "hide-end", "tokens": 0}, "tokens: Input should be greater than 0"),
        (
            {"use": "hide-end", "words": 2},
            "unknown key in input_transform: 'words'\n.*choices: use, tokens",
        ),
        ({"use": "mixup"}, "mixup has a key of its own"),
        ({}, "input_transform.use"),
    ],
)
def test_what_is_wrong_is_named(given, said):
    with pytest.raises(LimbeckError, match=said):
        Recipe.load("kd", input_transform=given)


def test_two_transforms_of_one_stage_are_refused():
    own = {"input_transform": {"use": "hide-end"}, "mixup": {"alpha": 1}}
    with pytest.raises(
        LimbeckError, match="mixup, input_transform: inputs are transformed in one way"
    ):
        Recipe.load("kd", **own)


def test_only_what_it_changes_is_another_thing(tmp_path):
    """The student sees other inputs than its twin does; the teacher's are the same."""
    logged = {}
    for name, given in {"plain": {}, "hidden": {"input_transform": {"use": "hide-end"}}}.items():
        trainer = make(tmp_path / name, method=Recipe.load("kd-soft", **given))
        trainer.train()
        logged[name] = steps_logged(trainer)[0]["loss"]
    assert logged["plain"] != logged["hidden"]


def test_pictures_are_refused_by_name():
    transform = Recipe.load("kd", input_transform={"use": "hide-end"}).transform
    pictures = {"pixel_values": torch.zeros(2, 3, 8, 8)}
    with pytest.raises(LimbeckError, match="leave hide-end out for images"):
        transform.check(pictures)
