"""Help texts of settings, taken from the recipe's own fields: meaning and unit stand once.

The fields are read from the source, not imported: importing the
recipe loads torch, and `--help` should not wait for it. A test holds this reading equal to the
imported fields.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib import resources
from typing import Any

import typer
from rich.markup import escape

from limbeck.cli.options import SETTINGS

# The classes of recipe/fields.py and where their fields stand in a recipe.
PREFIXES = {"RecipeFields": "", "StudentSpec": "student."}


def setting(name: str, panel: str | None = None) -> Any:
    """The option `--name` of a recipe setting, with the recipe field's description as its help.

    The default is shown as a part of it: left out, a flag leaves the word to the recipe, whose method may have
    another.
    """
    key = SETTINGS[name]
    text = descriptions()[key]
    default = defaults().get(key)
    if default not in (None, False):
        text += (
            f" [default: {default:g}]" if isinstance(default, float) else f" [default: {default}]"
        )
    return typer.Option(help=escape(text), rich_help_panel=panel)


@cache
def descriptions() -> dict[str, str]:
    """What the recipe says about each setting, by key; nested keys have dots (`student.layers`)."""
    return {key: text for key, call in _fields().items() for text in _described(call)}


@cache
def defaults() -> dict[str, Any]:
    """The recipe's default of each setting that has a plain one, by key."""
    return {
        key: call.args[0].value
        for key, call in _fields().items()
        if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant)
    }


@cache
def _fields() -> dict[str, ast.expr | None]:
    source = (resources.files("limbeck") / "recipe" / "fields.py").read_text(encoding="utf-8")
    return {
        PREFIXES[block.name] + field.target.id: field.value
        for block in ast.parse(source).body
        if isinstance(block, ast.ClassDef) and block.name in PREFIXES
        for field in block.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def _described(call: ast.expr | None) -> list[str]:
    """The `description=` of a `Field(…)` call, if it has one."""
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return [ast.literal_eval(word.value) for word in keywords if word.arg == "description"]
