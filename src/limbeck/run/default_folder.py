"""Where a run goes when no folder is given. Part of `limbeck.run`."""

from __future__ import annotations

from pathlib import Path

from limbeck.files import file_name
from limbeck.recipe import Recipe
from limbeck.tasks import TASKS


def default_folder(recipe: Recipe) -> Path:
    """`runs/<task>-<method>-<layers>-s<seed>`, where no folder is given."""
    layers = recipe.student.layers
    if isinstance(layers, dict):
        parts = [f"-{stack}-{_layers(kept)}" for stack, kept in layers.items()]
    else:
        parts = [] if layers is None else [f"-{_layers(layers)}"]
    kind = "" if recipe.kind is None or recipe.task not in TASKS else f"-{recipe.kind}"
    name = f"{recipe.task}{kind}-{recipe.method}{''.join(parts)}-s{recipe.seed}"
    return Path("runs") / file_name(name)


def _layers(kept: int | list[int]) -> str:
    return f"{kept}l" if isinstance(kept, int) else "l" + ".".join(map(str, kept))
