"""`limbeck methods`: what there is to distil by, and what each method computes.

It reads the recipes that come with limbeck, and nothing else.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.syntax import ANSI_DARK, ANSISyntaxTheme, Syntax
from rich.table import Table
from rich.text import Text

from limbeck.cli.console import output
from limbeck.cli.paper_settings_view import show_stated
from limbeck.recipe.catalog import FAMILIES, CatalogEntry, available, find, names, no_such_method
from limbeck.support.errors import LimbeckError
from limbeck.support.registry import (
    Registered,
    load_packages,
    load_plugins,
    registered_since,
    registrations,
)

if TYPE_CHECKING:
    from rich.console import Console


def methods(
    name: Annotated[
        str | None, typer.Argument(help="One method, or one loss of a plugin, to see all about it.")
    ] = None,
    plugin: Annotated[
        list[str] | None,
        typer.Option(help="Files of Python that register losses of your own, to list them too."),
    ] = None,
) -> None:
    """List the methods by family; with NAME, show its formula, its paper, its settings and its entry."""
    own = [one for file in load_plugins(plugin or ()) for one in file.registered]
    if name is None:
        list_methods(available(), output())
        list_registered(own, output())
        return
    if name not in names():
        before = registrations()
        load_packages()
        own += registered_since(before)
        found = [one for one in own if one.name == name]
        if found:
            show_registered(found[0], output())
            return
        if own:
            raise LimbeckError(no_such_method(name, *(one.name for one in own)))
    show_method(find(name), output())


def list_registered(own: Sequence[Registered], console: Console) -> None:
    """What plugins have registered, a line each."""
    for what, members in groupby(own, key=lambda one: one.what):
        console.print()
        console.print(Text(f"Plugins: {what}", style="bold"))
        for one in members:
            summary = (inspect.getdoc(one.thing) or "").partition("\n")[0]
            console.print(Text.assemble("  ", (one.name, "cyan"), f"  {summary}"))


def show_registered(one: Registered, console: Console) -> None:
    """What it says of itself, and the settings it has in a recipe."""
    console.print(Text.assemble((one.name, "bold cyan"), f"  {one.what}"))
    console.print(Padding(Text(inspect.getdoc(one.thing) or ""), (1, 0, 0, 2), expand=False))
    settings = getattr(one.thing, "settings_class", None)
    if settings is not None:
        console.print()
        console.print(Text("Settings", style="bold"))
        for key, field in settings.model_fields.items():
            default = "" if field.is_required() else f" [default: {field.default}]"
            console.print(
                Text.assemble("  ", (key, "cyan"), f"  {field.description or ''}{default}")
            )


def list_methods(entries: Sequence[CatalogEntry], console: Console) -> None:
    """A heading for each family and a line for each method."""
    width = max(len(entry.method) for entry in entries)
    narrow = console.width < width + _SMALLEST_SUMMARY
    for family, members in groupby(entries, key=lambda entry: entry.family):
        console.print(Text(FAMILIES[family], style="bold"))
        if narrow:
            _print_narrow(members, console)
            continue
        rows = Table.grid(padding=(0, 2))
        rows.add_column(width=width + 2, no_wrap=True, style="cyan")
        rows.add_column()
        for entry in members:
            rows.add_row(Text(f"  {entry.method}"), Text(entry.summary))
        console.print(rows)
    console.print()
    console.print(Text("limbeck methods NAME shows one of them.", style="dim"))


# Beside names of that length a summary needs this much to be read.
_SMALLEST_SUMMARY = 32


def _print_narrow(entries: Iterable[CatalogEntry], console: Console) -> None:
    """Each summary below its method."""
    for entry in entries:
        console.print(Text(f"  {entry.method}", style="cyan"))
        console.print(Padding(Text(entry.summary), (0, 0, 0, 4), expand=False))


def show_method(entry: CatalogEntry, console: Console) -> None:
    """The formula, the paper, the settings and the recipe file of one method."""
    console.print(Text.assemble((entry.method, "bold cyan"), "  ", entry.summary))
    for title, text in (("Formula", entry.formula), ("Paper", entry.paper)):
        if text:
            console.print()
            console.print(Text(title, style="bold"))
            console.print(Padding(Text(text.strip()), (0, 0, 0, 2), expand=False))
    show_stated(entry.method, console)
    console.print()
    console.print(Text("Recipe", style="bold"))
    if console.is_terminal:
        # word_wrap: a narrow terminal must not hide the end of a line. The terminal's own colours.
        text = entry.text.rstrip()
        theme = ANSISyntaxTheme(ANSI_DARK)
        console.print(Syntax(text, "yaml", theme=theme, word_wrap=True))
    else:
        console.print(Text(entry.text.rstrip()), soft_wrap=True)
