"""Help texts of settings, taken from the recipe's own fields: meaning and unit stand once.

Last on the way of a training step. The fields are read from the source, not imported: importing the
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
    """The option `--name` of a recipe setting, with the recipe field's description as its help."""
    return typer.Option(help=escape(descriptions()[SETTINGS[name]]), rich_help_panel=panel)


@cache
def descriptions() -> dict[str, str]:
    """What the recipe says about each setting, by key; nested keys have dots (`student.layers`)."""
    source = (resources.files("limbeck") / "recipe" / "fields.py").read_text(encoding="utf-8")
    return {
        PREFIXES[block.name] + field.target.id: description
        for block in ast.parse(source).body
        if isinstance(block, ast.ClassDef) and block.name in PREFIXES
        for field in block.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        for description in _described(field.value)
    }


def _described(call: ast.expr | None) -> list[str]:
    """The `description=` of a `Field(…)` call, if it has one."""
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return [ast.literal_eval(word.value) for word in keywords if word.arg == "description"]
