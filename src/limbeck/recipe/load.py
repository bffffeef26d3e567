"""From a file, a method's name and `key=value` overrides to one checked recipe.

Part of `limbeck.recipe`. Every mistake is found before any work starts, and all are shown together.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from limbeck import catalog
from limbeck.errors import LimbeckError, Problem, unknown
from limbeck.recipe.fields import RecipeFields


def read_raw(path_or_name: str | Path, overrides: dict[str, Any]) -> dict[str, Any]:
    """The merged, unchecked recipe: the method's shipped file, under the user's file, under overrides.

    Args:
        path_or_name: a YAML file, or the name of a shipped method.
        overrides: values by key; dots reach inside (`"student.layers": 3`). None values are left out.

    Raises:
        LimbeckError: no such file or method, or the file is not a YAML mapping.
    """
    own = _read_file(path_or_name)
    given = {key: value for key, value in overrides.items() if value is not None}
    base = _base(str(given.pop("method", own.get("method", ""))), own, given)
    raw = merge(base, own)
    raw["method"] = base["method"]
    for key, value in given.items():
        _set(raw, key, value)
    raw["objectives"] = {
        name: term for name, term in (raw.get("objectives") or {}).items() if term is not None
    }
    return raw


def _read_file(path_or_name: str | Path) -> dict[str, Any]:
    path = Path(path_or_name)
    if path.suffix not in (".yaml", ".yml"):
        return {"method": catalog.find(str(path_or_name)).method}
    if not path.is_file():
        raise LimbeckError(f"recipe: no file {path}", "give an existing YAML file or use --method")
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise LimbeckError(f"recipe: {path} is not YAML: {error}", "mend the file") from None
    if not isinstance(raw, dict):
        raise LimbeckError(f"recipe: {path} holds no keys", "write key: value lines")
    return raw


def _base(method: str, own: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The shipped recipe to inherit from; a new name needs objectives of its own."""
    defines = own.get("objectives") or any(key.startswith("objectives") for key in given)
    if method not in catalog.names() and defines:
        return {"method": method or "own"}
    return catalog.read(method)


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`, key by key at every depth; lists and scalars replace."""
    merged = deepcopy(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = deepcopy(value)
    return merged


def _set(raw: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    place = raw
    for parent in parents:
        if not isinstance(place.get(parent), dict):
            place[parent] = {}
        place = place[parent]
    place[last] = value


def check(raw: dict[str, Any], model: type[RecipeFields], *, known_tasks: tuple[str, ...]) -> Any:
    """The recipe as `model`, or every mistake in it.

    Raises:
        LimbeckError: unknown keys, values outside their type or choices, an unknown task.
    """
    problems: list[Problem] = []
    recipe = None
    try:
        recipe = model.model_validate(raw)
    except ValidationError as error:
        problems += [_problem(detail, model) for detail in error.errors()]
    task = raw.get("task")
    own_columns = raw.get("text_columns") or raw.get("label_column")
    if task is not None and not own_columns and task not in known_tasks:
        problems.append(unknown("task", task, known_tasks))
    if not raw["objectives"]:
        problems.append(Problem("objectives: none are given", "add one, or name a `method`"))
    if problems:
        raise LimbeckError(problems)
    return recipe


def _problem(detail: Any, model: type[BaseModel]) -> Problem:
    # Pydantic puts the chosen branch of a union into the path; users do not write it.
    place = [str(part) for part in detail["loc"]]
    path = ".".join(part for part in place if part not in _BRANCHES)
    if detail["type"] == "extra_forbidden":
        known = list(model.model_fields) if len(place) == 1 else []
        return unknown("key", path, known) if known else Problem(
            f"unknown key {path!r}", "leave it out, or see `limbeck methods NAME` for an example"
        )
    message = detail["msg"].removeprefix("Value error, ")
    return Problem(f"{path}: {message} (got {_short(detail['input'])})", "mend this value")


_BRANCHES = {
    "hard_label", "soft_cross_entropy", "soft_kl", "mse", "normalized_mse", "cosine_distance",
    "hidden_mse", "int", "list[int]", "float", "Ramp",
}  # fmt: skip


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
