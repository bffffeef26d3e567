"""A merged recipe checked whole: every mistake in it, together, as the user wrote it.

Part of `limbeck.recipe`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from limbeck.data import CorpusSpec
from limbeck.data.loading import has_own_tasks
from limbeck.errors import LimbeckError, Problem, unknown
from limbeck.input_transforms import MixupSpec
from limbeck.lab.augmentation import AugmentSpec
from limbeck.mappings import MappingSpec
from limbeck.mappings.mapping_spec import class_of
from limbeck.objectives import OBJECTIVES, UNKNOWN_TERM, CurriculumSpec, plain_terms
from limbeck.objectives import class_of as term_class
from limbeck.recipe.augment_checks import augment_problems
from limbeck.recipe.fields import RecipeFields
from limbeck.recipe.groups import EmbeddingModelSpec, FirstStage, ImageSpec, StudentSpec
from limbeck.recipe.optimizer_settings import optimisation_problems
from limbeck.recipe.stage_checks import stage_problems
from limbeck.recipe.team_checks import team_problems
from limbeck.tasks import TASK_TYPES
from limbeck.teachers import USES


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
        problems += _problems(error.errors(), model, raw)
    first = raw.get("first_stage")
    for place, prefix in ((raw, ""), (first if isinstance(first, dict) else {}, "first_stage.")):
        task = place.get("task")
        own_columns = any(place.get(key) for key in ("text_columns", "label_column", "kind"))
        kind = place.get("kind")
        if isinstance(kind, str) and kind not in TASK_TYPES:
            problems.append(unknown(f"{prefix}kind", kind, list(TASK_TYPES)))
        own = own_columns or has_own_tasks(str(place.get("data", "hub")))
        if task is not None and not own and task not in known_tasks:
            problems.append(unknown(f"{prefix}task", task, known_tasks))
    if not raw["objectives"]:
        problems.append(Problem("objectives: none are given", "add one, or name a `method`"))
    if recipe is not None:
        problems += stage_problems(recipe) + team_problems(recipe)
        problems += optimisation_problems(recipe) + augment_problems(recipe)
    if problems:
        raise LimbeckError(problems)
    return recipe


def _problems(details: list[Any], model: type[BaseModel], raw: dict[str, Any]) -> list[Problem]:
    """One problem a mistake, though pydantic reports every branch of a union that did not fit."""
    messages: dict[str, list[str]] = {}
    problems: list[Problem] = []
    for detail in details:
        place = [str(part) for part in detail["loc"]]
        if detail["type"] == "extra_forbidden":
            problems.append(_unknown_key(place, model, raw))
            continue
        if detail["type"] == UNKNOWN_TERM:
            name = detail["input"]["compare"]
            problem = unknown("compare", name, list(OBJECTIVES))
            problems.append(replace(problem, message=f"{_path(place)}: {problem.message}"))
            continue
        message = detail["msg"].removeprefix("Value error, ")
        messages.setdefault(_path(place), []).append(f"{message} (got {_short(detail['input'])})")
    # A branch that fitted further inside says more than one that did not fit at all.
    return problems + [
        Problem(f"{path}: {'; or: '.join(found)}", "fix this value")
        for path, found in messages.items()
        if not any(other.startswith(f"{path}.") for other in messages)
    ]


def _path(place: list[str]) -> str:
    """Where the user wrote it: without the names of union branches, which pydantic puts in."""
    before = place[:1] if place[0] == "first_stage" and len(place) > 1 else []
    place = place[len(before) :]
    if place[0] == "team":  # the second is its `use`
        place = place[:1] + [part for part in place[1:] if part not in USES]
    if place[0] != "objectives":
        inside, name = place[1:], before + place[:1]
    else:
        inside, name = place[2:], before + place[:2]
    return ".".join(name + [part for part in inside if not _BRANCH.fullmatch(part)])


_BRANCH = re.compile(r"(constrained-)?(int|str|float)|Ramp|.*\[.*\]")


_INSIDE: dict[str, type[BaseModel]] = {
    "student": StudentSpec,
    "first_stage": FirstStage,
    "corpus": CorpusSpec,
    "curriculum": CurriculumSpec,
    "mixup": MixupSpec,
    **USES,
    "augment": AugmentSpec,
    "images": ImageSpec,
    "embedding": EmbeddingModelSpec,
}


def _unknown_key(place: list[str], model: type[BaseModel], raw: dict[str, Any]) -> Problem:
    *parents, key = place
    if not parents:
        return unknown("key", key, list(model.model_fields))
    first = parents[:2] == ["first_stage", "objectives"]
    inside = parents[1:] if first else parents
    if inside[0] == "objectives" and len(inside) > 1:
        terms = plain_terms((raw["first_stage"] if first else raw)["objectives"])
        home = _class_inside(terms[inside[1]], inside[2:])
    else:
        home = next(_INSIDE[part] for part in reversed(parents) if part in _INSIDE)
    return unknown(f"key in {_path(parents)}:", key, list(home.model_fields))


def _class_inside(term: dict[str, Any], places: list[str]) -> type[BaseModel]:
    """The class of the settings that stand deep in a term's, by the types of its fields."""
    home: type[BaseModel] = term_class(term["compare"])
    for place in places:
        if place in home.model_fields:
            home = next(_classes_in(home.model_fields[place].annotation), home)
    return class_of(term["mapping"]) if home is MappingSpec else home


def _classes_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _classes_in(part)


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
