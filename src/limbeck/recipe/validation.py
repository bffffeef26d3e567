"""A merged recipe checked whole: every mistake in it, together, as the user wrote it.

Part of `limbeck.recipe`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, get_args

import annotated_types
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from limbeck.data.load import has_own_tasks, is_absent
from limbeck.data.own import may_be_own
from limbeck.mappings import MappingSpec
from limbeck.mappings.spec import class_of
from limbeck.objectives import OBJECTIVES, UNKNOWN_TERM, plain_terms
from limbeck.objectives import class_of as term_class
from limbeck.recipe.augment_spec import augmentation
from limbeck.recipe.checks import stage_problems
from limbeck.recipe.fields import RecipeFields
from limbeck.recipe.optimizer_settings import optimisation_problems
from limbeck.recipe.team_checks import team_problems
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.files import at_home
from limbeck.support.settings import RefusedValueError, Settings
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
            problems.append(unknown(f"{prefix}kind", kind, sorted(TASK_TYPES)))
        source = str(place.get("data", "hub"))
        # Of what is not there, or holds no rows, the run says so, whatever the task.
        own = own_columns or may_be_own(at_home(source)) or has_own_tasks(source)
        own = own or is_absent(source)
        if task is not None and not own and task not in known_tasks:
            problems.append(unknown(f"{prefix}task", task, known_tasks))
    if not raw["objectives"]:
        problems.append(Problem("objectives: none are given", "add one, or name a `method`"))
    if recipe is not None:
        problems += stage_problems(recipe) + team_problems(recipe)
        problems += optimisation_problems(recipe)
        if recipe.augment is not None:
            problems += augmentation().problems(recipe)
    if problems:
        raise LimbeckError(problems)
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
    # A branch that fitted further inside says more than one that did not fit at all.
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
    if detail["type"] == UNKNOWN_TERM:
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
    """The class of the settings that stand at a place, by the types of fields and by what they name."""
    home, given = model, raw
    terms = False
    for place in parents:
        given = given.get(place, given) if isinstance(given, Mapping) else given
        if terms:
            given = plain_terms(given)
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


# What would have been a right value, for one that pydantic refused. From the error's type and
# context, and for numbers from the bounds of the field, as an error names only the one that was
# crossed.


_BOUNDS: dict[str, tuple[type[Any], str]] = {
    "gt": (annotated_types.Gt, "above"),
    "ge": (annotated_types.Ge, "at least"),
    "lt": (annotated_types.Lt, "below"),
    "le": (annotated_types.Le, "at most"),
}
_CROSSED = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")
_FLAGS = ("teachers", "outputs", "text_columns", "classes", "output_classes")
"""Lists that the command line takes as options too, under their own names."""
_NUMBERS = {"int": "a whole number", "float": "a number", "finite": "a finite number"}
_KINDS = {
    "bool": "true or false",
    "string": "text, in quotes if it looks like something else",
    "dict": "names with values: {NAME: VALUE}",
    "model": "settings with their values: {SETTING: VALUE}",
    "no_compare": "say what it compares: {compare: soft_kl}",
    "no_term": "give its settings: {compare: soft_kl}",
}


def wanted(detail: Any, path: str, home: type[BaseModel] | None) -> str:
    """The fix for one of pydantic's errors.

    Args:
        detail: the error.
        path: the setting, as the user writes it.
        home: the group of settings that it is one of, where that is known.
    """
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in ("literal_error", "union_tag_invalid"):
        return _choices(detail["input"], context)
    if kind == "union_tag_not_found":
        return f"say which: {path}.{context['discriminator'].strip(chr(39))}=…"
    if kind in _CROSSED:
        return _bounds(path, home) or _crossed(context)
    if kind == "missing":
        return f"add it: {_description(path, home)}"
    if kind in ("too_short", "list_type"):
        return _length(kind, context) + _as_list(detail["input"], path)
    if kind in ("too_long", "string_too_short", "string_too_long"):
        return _length(kind, context)
    first = kind.split("_")[0]
    if first in _NUMBERS:
        return f"{_NUMBERS[first]} {_bounds(path, home)}".strip()
    return _KINDS.get(kind) or _KINDS.get(first) or f"give {path} another value"


def _choices(given: Any, context: dict[str, Any]) -> str:
    if "tag" in context:
        given = context["tag"]
    listed = context.get("expected") or context["expected_tags"]
    names = [name.strip("'") for name in re.split(r", | or ", listed)]
    return unknown("", given, names).fix


def _length(kind: str, context: dict[str, Any]) -> str:
    if kind == "list_type":
        return "a list"
    word, count = (
        ("at least", "min_length") if "min_length" in context else ("at most", "max_length")
    )
    what = "character" if kind.startswith("string") else "value"
    return f"{word} {context[count]} {what}{'s' * (context[count] != 1)}"


def _as_list(given: Any, path: str) -> str:
    """How several values are written, to whoever wrote one, or several with commas between them."""
    one = given[0] if isinstance(given, list) and len(given) == 1 else given
    if not isinstance(one, str):
        return ""
    names = [name.strip() for name in one.strip("[]").split(",") if name.strip()]
    listed = f"{path}='[{', '.join(names) or 'A'}{', …' * (isinstance(given, list) and len(names) < 2)}]'"
    if path not in _FLAGS or len(names) < 2:
        return f": {listed}"
    return (
        f", with spaces between them (--{path.replace('_', '-')} {' '.join(names)}) or as {listed}"
    )


def _crossed(context: dict[str, Any]) -> str:
    return " and ".join(
        f"{word} {_number(context[key])}" for key, (_, word) in _BOUNDS.items() if key in context
    )


def _bounds(path: str, home: type[BaseModel] | None) -> str:
    """All bounds of the number that a field holds, if any: at least 0 and at most 1."""
    found = [*_marks(_field(path, home))]
    said = {
        f"{word} {_number(getattr(mark, key))}": None
        for key, (sort, word) in _BOUNDS.items()
        for mark in found
        if isinstance(mark, sort)
    }
    return " and ".join(said)


def _number(bound: float) -> str:
    return f"{int(bound)}" if bound == int(bound) else f"{bound:g}"


def _description(path: str, home: type[BaseModel] | None) -> str:
    field = _field(path, home)
    return (field is not None and field.description) or "it has no default"


def _field(path: str, home: type[BaseModel] | None) -> FieldInfo | None:
    names = [name for name in path.split(".") if not name.isdecimal()]
    return home.model_fields.get(names[-1]) if home is not None and names else None


def _marks(part: Any) -> Iterator[Any]:
    """What stands in a field, or in a type, beside the plain types."""
    if isinstance(part, FieldInfo):
        yield from part.metadata
        yield from _marks(part.annotation)
    elif get_args(part):
        for inner in get_args(part):
            yield from _marks(inner)
