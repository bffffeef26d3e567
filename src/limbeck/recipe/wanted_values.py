"""What would have been a right value, for one that pydantic refused. Part of `limbeck.recipe`.

From the error's type and context, and for numbers from the bounds of the field, as an error names only the one that
was crossed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from limbeck.support.errors import unknown

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
