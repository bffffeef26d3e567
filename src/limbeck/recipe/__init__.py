"""A recipe: one method, its models, data and training settings, read from YAML and checked completely.

Pre-flight and training read nothing else. Names in this package are imported when they are first used: the
fields of a recipe (`fields`), which are the command line's help, are read without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from limbeck.recipe.catalog import available, find
    from limbeck.recipe.checks import departures
    from limbeck.recipe.groups import FirstStage, ImageSpec, StudentSpec
    from limbeck.recipe.recipe import Recipe, Stage

__all__ = [
    "FirstStage",
    "ImageSpec",
    "Recipe",
    "Stage",
    "StudentSpec",
    "available",
    "departures",
    "find",
]

_HOMES = {"available": "limbeck.recipe.catalog", "find": "limbeck.recipe.catalog"}
_HOMES |= {"departures": "limbeck.recipe.checks"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        # Where the fields' types are put in, which `fields` itself only names.
        import_module("limbeck.recipe.recipe")
        return getattr(import_module(_HOMES.get(name, "limbeck.recipe.recipe")), name)
    raise AttributeError(f"module 'limbeck.recipe' has no attribute {name!r}")
