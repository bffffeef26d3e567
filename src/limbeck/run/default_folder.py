"""Where a run goes when no folder is given. Part of `limbeck.run`."""

from __future__ import annotations

import json
from pathlib import Path

from limbeck.recipe import Recipe
from limbeck.support.files import checksum_of_text, file_name
from limbeck.support.given import PREFIX
from limbeck.tasks import TASKS

_LONGEST = 32
"""Characters of a model's name."""


def default_folder(recipe: Recipe) -> Path:
    """`runs/TASK-METHOD-MODELS-LAYERS-sSEED-DIGEST`, where no folder is given.

    The digest is of every setting that is not the usual one: two experiments never meet in one folder, and the same
    command finds its own again.
    """
    layers = recipe.student.layers
    if isinstance(layers, dict):
        kept = [f"{stack}-{_layers(number)}" for stack, number in layers.items()]
    else:
        kept = [] if layers is None else [_layers(layers)]
    kind = [] if recipe.kind is None or recipe.task not in TASKS else [recipe.kind]
    parts = [str(recipe.task), *kind, recipe.method, *_models(recipe), *kept, f"s{recipe.seed}"]
    return Path("runs") / file_name("-".join([*parts, _digest(recipe)]))


def _models(recipe: Recipe) -> list[str]:
    """Short names of the teacher and of the checkpoint that the student starts from."""
    sources = recipe.outputs or recipe.teachers or ([recipe.teacher] if recipe.teacher else [])
    named = [_short(sources[0], recipe)] if sources else []
    named += [f"and-{len(sources) - 1}-more"] if len(sources) > 1 else []
    start = [] if recipe.student.from_teacher else [_short(recipe.student.init, recipe)]
    return [*named, *start]


def _short(model: str, recipe: Recipe) -> str:
    """The last part of a path, without the task that the run's own name begins with."""
    if model.startswith(PREFIX):
        return "given"
    name = Path(model).name.removeprefix(f"{recipe.task}-")
    return file_name(name)[:_LONGEST].rstrip("-.")


def _digest(recipe: Recipe) -> str:
    changed = recipe.model_dump(mode="json", exclude_defaults=True)
    return checksum_of_text(json.dumps(changed, sort_keys=True))[:6]


def _layers(kept: int | list[int]) -> str:
    return f"{kept}l" if isinstance(kept, int) else "l" + ".".join(map(str, kept))
