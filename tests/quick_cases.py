"""Which cases of a test run by default: the others, of the same kind, are slow ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from limbeck.recipe import Recipe


def quick(*kept: Any, of: Iterable[Any]) -> list[Any]:
    """All values of a parameter; those that are not kept are marked slow."""
    return [one if one in kept else pytest.param(one, marks=pytest.mark.slow) for one in of]


def first_of_a_kind(cases: Iterable[tuple[Any, ...]], recipes: Iterable[Recipe]) -> list[Any]:
    """Each case with its recipe; slow where an earlier one has the same terms and maps, of whatever settings."""
    seen, found = [], []
    for case, recipe in zip(cases, recipes, strict=True):
        terms = {
            (type(one), type(getattr(one, "mapping", None))) for one in recipe.objectives.values()
        }
        kind = (
            recipe.kind,
            recipe.team and recipe.team.use,
            recipe.curriculum,
            recipe.mixup,
            terms,
        )
        found.append(pytest.param(*case, marks=[pytest.mark.slow] * (kind in seen)))
        seen.append(kind)
    return found
