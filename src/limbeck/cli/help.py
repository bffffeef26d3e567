"""Help texts of settings: the recipe's own fields, so that meaning and unit stand once."""

from __future__ import annotations

from typing import Any

import typer
from rich.markup import escape

from limbeck.cli.options import SETTINGS
from limbeck.recipe.fields import descriptions, plain_defaults


def option(panel: str, text: str, **limits: Any) -> Any:
    """An option in a part of the help."""
    return typer.Option(help=text, rich_help_panel=panel, **limits)


def setting(name: str, panel: str | None = None) -> Any:
    """The option `--name` of a recipe setting, with the recipe field's description as its help.

    The default is shown as a part of it: left out, a flag leaves the word to the recipe, whose method may have
    another.
    """
    key = SETTINGS[name]
    text = descriptions()[key]
    default = plain_defaults().get(key)
    if default not in (None, False):
        text += (
            f" [default: {default:g}]" if isinstance(default, float) else f" [default: {default}]"
        )
    return typer.Option(help=escape(text), rich_help_panel=panel)
