"""Writes `docs/recipe-keys.md` from the recipe's own fields: `python scripts/recipe_page.py`.

A test holds the page equal to what this would write, so that neither can change alone.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from limbeck.recipe import Recipe

PAGE = Path(__file__).parents[1] / "docs" / "recipe-keys.md"
_INTRODUCTION = """# Recipe keys

Every key of a [recipe file](cli.md#settings), with its default. On the command line any of them is `KEY=VALUE`,
with dots for nested keys (`student.layers=3`), and many have an option of their own (`limbeck distill --help`).
A method's recipe sets some of them: `limbeck methods NAME` shows which. From Python they are the keywords of
`limbeck.distill` and of `Recipe.load`.

<!-- All of this page is written by scripts/recipe_page.py. -->
"""


def page() -> str:
    """The whole page."""
    groups: list[tuple[str, type[BaseModel]]] = [("", Recipe), *_groups(Recipe, "")]
    parts = [_INTRODUCTION]
    for place, group in groups:
        title = f"`{place}`{_use(group)}" if place else "Top level"
        parts.append("\n".join([f"## {title}", "", *_table(group), ""]))
    return "\n".join(parts)


def _use(group: type[BaseModel]) -> str:
    """Of groups that stand at one place by their `use`, which one it is."""
    field = group.model_fields.get("use")
    known = [] if field is None else _choices(field.annotation)
    return f" with `use: {' or '.join(map(str, known))}`" if known else ""


def _groups(group: type[BaseModel], place: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Each group of keys inside another, once, by the place where it stands first."""
    found: dict[type[BaseModel], str] = {}
    _find(group, place, found)
    for inner, where in found.items():
        yield where, inner


def _find(group: type[BaseModel], place: str, found: dict[type[BaseModel], str]) -> None:
    for name, field in group.model_fields.items():
        where = f"{place}.{name}" if place else name
        for inner, named in _inside(field.annotation, where):
            if inner not in found and inner is not group:
                found[inner] = named
                _find(inner, named, found)


def _inside(annotation: Any, place: str) -> Iterator[tuple[type[BaseModel], str]]:
    """The groups of keys in a type; those of a mapping stand under a name of the user's."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, place
    inner = f"{place}.NAME" if get_origin(annotation) is dict else place
    for one in get_args(annotation):
        yield from _inside(one, inner)


def _table(group: type[BaseModel]) -> Iterator[str]:
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for name, field in group.model_fields.items():
        meaning = (field.description or "").replace("|", "\\|")
        choices = [value for value in _choices(field.annotation) if str(value) not in meaning]
        if choices:
            meaning += f" ({', '.join(map(str, choices))})"
        yield f"| `{name}` | {_default(field)} | {meaning} |"


def _choices(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if get_origin(annotation) in (Union, types.UnionType):
        return [value for one in get_args(annotation) for value in _choices(one)]
    return []


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or value in ("", [], {}, ()):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    sys.stdout.write(f"{PAGE}\n")
