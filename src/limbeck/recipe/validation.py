"""Validate a merged recipe completely: report all its mistakes together, as the user wrote them.

Part of `limbeck.recipe`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from limbeck.data import load
from limbeck.data.own import may_be_own
from limbeck.mappings import MappingSpec
from limbeck.mappings.spec import class_of
from limbeck.objectives import OBJECTIVES, registration
from limbeck.objectives.registration import class_of as term_class
from limbeck.recipe import augment_spec, checks
from limbeck.recipe.fields import RecipeFields
from limbeck.support import files
from limbeck.support.errors import LimbeckError, Problem, raise_problems, unknown
from limbeck.support.given import is_reference
from limbeck.support.settings import RefusedValueError, Settings
from limbeck.tasks import TASK_TYPES
from limbeck.teachers.team import USES

Kind = TypeVar("Kind", bound=RecipeFields)


def check(raw: dict[str, Any], model: type[Kind], *, known_tasks: tuple[str, ...]) -> Kind:
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
            problems.append(unknown(f"{prefix}kind", kind, sorted(TASK_TYPES)))
        source = str(place.get("data", "hub"))
        # If the data is missing or empty, the run reports it, whatever the task.
        own = own_columns or may_be_own(files.at_home(source)) or load.has_own_tasks(source)
        own = own or load.is_absent(source) or is_reference(source)
        if task is not None and not own and task not in known_tasks:
            problems.append(unknown(f"{prefix}task", task, known_tasks))
    if not raw["objectives"]:
        problems.append(Problem("objectives: none are given", "add one, or name a `method`"))
    if recipe is not None:
        problems += checks.recipe_problems(recipe)
        if recipe.augment is not None:
            problems += augment_spec.augmentation().problems(recipe)
    raise_problems(problems)
    assert recipe is not None  # there would be a problem
    return recipe


def _problems(details: list[Any], model: type[BaseModel], raw: dict[str, Any]) -> list[Problem]:
    """One problem a mistake, though pydantic reports every branch of a union that did not fit."""
    found: dict[str, list[tuple[str, str]]] = {}
    problems: list[Problem] = []
    for detail in details:
        place = [str(part) for part in detail["loc"]]
        whole = _whole_problems(detail, place, model, raw)
        if whole is not None:
            problems += whole
            continue
        path, message = _path(place), detail["msg"].removeprefix("Value error, ")
        fix = wanted(detail, path, _group(place, model, raw))
        said = f"{message} (got {_short(detail['input'])})"
        found.setdefault(path, []).append((said, fix))
    # A branch that fitted further inside explains more than one that did not fit at all.
    return problems + [
        Problem(f"{path}: {_either(messages)}", _either(fixes))
        for path, (messages, fixes) in (
            (path, zip(*one, strict=True)) for path, one in found.items()
        )
        if not any(other.startswith(f"{path}.") for other in found)
    ]


def _either(parts: Iterable[str]) -> str:
    return "; or: ".join(dict.fromkeys(parts))


def _whole_problems(
    detail: Any, place: list[str], model: type[BaseModel], raw: dict[str, Any]
) -> list[Problem] | None:
    """The problems of an error that no other branch of a union can add to; None for any other."""
    if detail["type"] == "extra_forbidden":
        return [_unknown_key(place, model, raw)]
    if detail["type"] == registration.UNKNOWN_TERM:
        problem = unknown("compare", detail["input"]["compare"], sorted(OBJECTIVES))
        return [replace(problem, message=f"{_path(place)}: {problem.message}")]
    refused = detail.get("ctx", {}).get("error")
    return refused.problems if isinstance(refused, RefusedValueError) else None


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


def _unknown_key(place: list[str], model: type[BaseModel], raw: dict[str, Any]) -> Problem:
    *parents, key = place
    home = _settings_at(parents, model, raw)
    return unknown(f"key in {_path(parents)}:" if parents else "key", key, list(home.model_fields))


def _group(place: list[str], model: type[BaseModel], raw: dict[str, Any]) -> type[BaseModel] | None:
    """The settings of which the last place that names one is; None inside what cannot be read."""
    named = [at for at, part in enumerate(place) if not _BRANCH.fullmatch(part)]
    while named and place[named[-1]].isdecimal():
        named.pop()
    try:
        return _settings_at(place[: named[-1]], model, raw) if named else None
    except (LimbeckError, ValueError, KeyError, TypeError):
        return None


def _settings_at(parents: list[str], model: type[BaseModel], raw: Any) -> type[BaseModel]:
    """The class of the settings at a place, by the types of fields and by the names in them."""
    home, given = model, raw
    terms = False
    for place in parents:
        given = given.get(place, given) if isinstance(given, Mapping) else given
        if terms:
            given = registration.plain_terms(given)
            home, terms = term_class(given["compare"]), False
        elif place in home.model_fields:
            terms = place == "objectives"
            home = next(_classes_in(home.model_fields[place].annotation), home)
        elif home in USES.values():
            home = USES.get(place, home)
        home = _named_class(home, given)
    return home


def _named_class(home: type[BaseModel], given: Any) -> type[BaseModel]:
    if home is MappingSpec and isinstance(given, Mapping):
        return class_of(dict(given))
    return home.named_by(given) if issubclass(home, Settings) else home


def _classes_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _classes_in(part)


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


# The correct values after pydantic's error: its message states the type and the bounds. This adds the meaning of
# the setting, the nearest choices, or how a list is written.


_FLAGS = ("teachers", "outputs", "text_columns", "classes", "output_classes")
"""Lists that the command line takes as options too, under their own names."""
_TERM = "{compare: soft_kl}"
_FIXES = {"no_compare": f"set its comparison: {_TERM}", "no_term": f"give its settings: {_TERM}"}


def wanted(detail: Any, path: str, home: type[BaseModel] | None) -> str:
    """The fix for one of pydantic's errors.

    Args:
        detail: the error.
        path: the setting, as the user writes it.
        home: the group of settings that it is one of, where that is known.
    """
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in ("literal_error", "union_tag_invalid"):
        listed = context.get("expected") or context["expected_tags"]
        names = [name.strip("'") for name in re.split(r", | or ", listed)]
        return unknown("", context.get("tag", detail["input"]), names).fix
    if kind == "union_tag_not_found":
        return f"set one: {path}.{context['discriminator'].strip(chr(39))}=…"
    if kind in ("too_short", "list_type") and (listed := _as_list(detail["input"], path)):
        return listed
    named = [name for name in path.split(".") if not name.isdecimal()]
    field = home.model_fields.get(named[-1]) if home is not None and named else None
    meaning = "" if field is None or field.description is None else f": {field.description}"
    return _FIXES.get(kind) or f"{'add it' if kind == 'missing' else 'give another value'}{meaning}"


def _as_list(given: Any, path: str) -> str:
    """How several values are written, for a user who wrote one value, or several with commas."""
    one = given[0] if isinstance(given, list) and len(given) == 1 else given
    if not isinstance(one, str):
        return ""
    names = [name.strip() for name in one.strip("[]").split(",") if name.strip()]
    listed = f"{path}='[{', '.join(names) or 'A'}{', …' * (isinstance(given, list) and len(names) < 2)}]'"
    if path not in _FLAGS or len(names) < 2:
        return f"write a list: {listed}"
    return f"write them with spaces between (--{path.replace('_', '-')} {' '.join(names)}) or as {listed}"
