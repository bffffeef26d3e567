"""The terms that made a checkpoint, held against those that would go on with it. Part of `limbeck.training`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from limbeck.recipe import Recipe
from limbeck.support.errors import LimbeckError
from limbeck.training.method_settings import BESIDE

_SAID = {"objectives", *BESIDE}


def terms_of(recipe: Recipe) -> dict[str, Any]:
    """What a checkpoint keeps of the stage that made it, as plain values."""
    return recipe.model_dump(mode="json", include=_SAID)


def check_terms(began: Mapping[str, Any] | None, recipe: Recipe, checkpoint: str) -> None:
    """Raise LimbeckError where a checkpoint was trained by other terms than a recipe's, naming the keys.

    `began` is what `terms_of` said then; None, of a checkpoint of an older version, fits any.
    """
    if began is None:
        return
    then, now = dict(_flat(began)), dict(_flat(terms_of(recipe)))
    # A key that only one of them has is one that an older or newer version says; a term is neither.
    wholes = _terms(began) ^ _terms(terms_of(recipe))
    keys = {key for key in then.keys() & now.keys() if then[key] != now[key]}
    if wholes or keys:
        raise LimbeckError(
            f"{checkpoint} was trained by other terms: {', '.join(sorted(wholes | keys))} differ",
            "train with the terms it was made by, or from the beginning, into another output_dir; to start "
            "from its weights give the saved student as model=",
        )


def _terms(said: Mapping[str, Any]) -> set[str]:
    given = {key for key in _SAID - {"objectives"} if said.get(key) is not None}
    return given | {f"objectives.{name}" for name in said.get("objectives") or {}}


def _flat(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield place, value
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{place}.{key}" if place else str(key))
