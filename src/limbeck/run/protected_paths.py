"""What a recipe reads from disk, which its run must not write over. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from limbeck.data.stream import matching
from limbeck.outputs.store import place_and_member
from limbeck.recipe import Recipe
from limbeck.students import named_model, names_cnn
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home

# Settings whose value may be a file or a folder, wherever in a recipe they stand.
_PLACES = frozenset(
    {
        "teacher",
        "teachers",
        "outputs",
        "data",
        "dev",
        "test",
        "unlabelled",
        "init",
        "tokenizer",
        "model",
        "embeddings",
        "source",
        "plugin",
    }
)
# Values that name no place, whatever lies beside the working directory.
_NO_PLACES = frozenset({"hub", "pocket", "digits", "fresh"})
# Of settings that name a model the ones that stand for another of the run's.
_OTHERS = frozenset({"teacher", "pretrained", "distilled"})


def refuse_inputs(recipe: Recipe, out: Path) -> None:
    """Raise LimbeckError for an output folder that is, or holds, something the run reads."""
    target = at_home(out).resolve()
    found = [
        f"{place} ({setting})"
        for setting, place in places(recipe.model_dump(mode="json"))
        if place.exists() and place.resolve().is_relative_to(target)
    ]
    if found:
        raise LimbeckError(
            f"out: {out} is, or holds, what this run reads: {', '.join(found)}",
            "choose another folder with --out",
        )


def places(settings: dict[str, Any], above: str = "") -> Iterator[tuple[str, Path]]:
    """Each setting whose value may be a file or a folder, and where that would be."""
    for key, value in settings.items():
        name = f"{above}{key}"
        if isinstance(value, dict):
            yield from places(value, f"{name}.")
        elif key in _PLACES:
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str) and not _is_name(key, text):
                    for path in _meant(key, text):
                        yield name, path


def _meant(key: str, text: str) -> list[Path]:
    """The place that a setting names, or all files that a pattern does."""
    if key == "outputs":
        text, _ = place_and_member(text)
    files = matching(text) if key == "unlabelled" and not at_home(text).exists() else []
    return files or [at_home(text.removeprefix("hub:"))]


def _is_name(key: str, text: str) -> bool:
    shape = key == "init" and (names_cnn(text) or named_model(text) is not None)
    other = key in ("init", "model") and text in _OTHERS
    return shape or other or text in _NO_PLACES
