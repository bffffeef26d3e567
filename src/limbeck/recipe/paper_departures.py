"""Where a recipe does otherwise than the settings it names. Part of `limbeck.recipe`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from limbeck.recipe.fields import RecipeFields
from limbeck.recipe.paper_settings import flat, stated_of
from limbeck.students import names_cnn, starts_random

_START = "student.init"


def departures(recipe: RecipeFields) -> list[str]:
    """Dotted keys that the recipe's settings state and the recipe has otherwise.

    Empty for quick settings, and for methods that do not ship: nothing is stated for them here.
    """
    stated = stated_of(recipe.method).get(recipe.settings)
    net = names_cnn(recipe.student.init)
    if stated is None or (net and stated.nets is None):
        return []
    own = recipe.model_dump(mode="json")
    wanted = dict(flat(stated.settings(recipe.task, net=net)))
    found = [key for key, value in wanted.items() if key != _START and _at(own, key) != value]
    # Any checkpoint may stand for a paper's; a teacher's layers or random weights do not.
    other = recipe.student.from_teacher or starts_random(recipe.student.init)
    return [_START, *found] if _START in wanted and other else found


def _at(keys: Any, key: str) -> Any:
    for part in key.split("."):
        keys = keys.get(part) if isinstance(keys, Mapping) else None
    return keys
