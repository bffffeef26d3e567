"""`limbeck methods`: list the methods, and show the equations of each.

It reads the recipes that come with limbeck, and nothing else.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from limbeck.cli.console import output
from limbeck.recipe import catalog
from limbeck.recipe.paper_settings import QUICK, Stated, flat, stated_of
from limbeck.recipe.quick import quick_settings
from limbeck.records.words import grouped
from limbeck.support import registry
from limbeck.support.errors import LimbeckError


def methods(
    name: Annotated[
        str | None, typer.Argument(help="One method, or one loss of a plugin, to show in detail.")
    ] = None,
    plugin: Annotated[
        list[str] | None,
        typer.Option(help="Python files that register your own losses, to list them too."),
    ] = None,
) -> None:
    """List the methods by family; with NAME, show its formula, its paper, its settings and its entry."""
    own = [one for file in registry.load_plugins(plugin or ()) for one in file.registered]
    if name is None:
        list_methods(catalog.available(), output())
        list_registered(own, output())
        return
    if name not in catalog.names():
        before = registry.registrations()
        registry.load_packages()
        own += registry.registered_since(before)
        found = [one for one in own if one.name == name]
        if found:
            show_registered(found[0], output())
            return
        if own:
            raise LimbeckError(catalog.no_such_method(name, *(one.name for one in own)))
    show_method(catalog.find(name), output())


def list_registered(own: Sequence[registry.Registered], console: Console) -> None:
    """What plugins have registered, a line each."""
    for what, members in groupby(own, key=lambda one: one.what):
        console.print()
        console.print(Text(f"Plugins: {what}", style="bold"))
        for one in members:
            summary = (inspect.getdoc(one.thing) or "").partition("\n")[0]
            console.print(Text.assemble("  ", (one.name, "cyan"), f"  {summary}"))


def show_registered(one: registry.Registered, console: Console) -> None:
    """Print its description, and its settings in a recipe."""
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


def list_methods(entries: Sequence[catalog.CatalogEntry], console: Console) -> None:
    """The recommended ones with their use; then a heading for each family and a line for each method."""
    width = max(len(entry.method) for entry in entries)
    groups = {"Start with": catalog.RECOMMENDED}
    for family, members in groupby(entries, key=lambda entry: entry.family):
        groups[catalog.FAMILIES[family]] = {entry.method: entry.summary for entry in members}
    for title, lines in groups.items():
        console.print(Text(title, style="bold"))
        rows = Table.grid(padding=(0, 2))
        rows.add_column(width=width + 2, no_wrap=True, style="cyan")
        rows.add_column(overflow="fold")
        for name, text in lines.items():
            rows.add_row(Text(f"  {name}"), Text(text))
        console.print(rows)
    console.print()
    console.print(Text("limbeck methods NAME shows one of them.", style="dim"))


def show_method(entry: catalog.CatalogEntry, console: Console) -> None:
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
    # A log gets complete lines; a narrow terminal must not hide the end of one.
    console.print(Text(entry.text.rstrip()), soft_wrap=not console.is_terminal)


NOT_STATED = "not stated"
SEARCHED = "searched"
_LEGEND = f"{NOT_STATED}, {SEARCHED}: the {QUICK} value is used"


def show_stated(method: str, console: Console) -> None:
    """Print a table of the method's own settings and its papers' settings, and notes without keys."""
    sets = stated_of(method)
    console.print()
    console.print(Text("Settings", style="bold"))
    for columns in _side_by_side([["", QUICK, *sets], *rows_of(method, sets)], console.width - 4):
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for title in columns[0]:
            table.add_column(title, overflow="fold")
        for row in columns[1:]:
            table.add_row(*(Text(cell) for cell in row))
        console.print(Padding(table, (0, 0, 1, 2), expand=False))
    if sets:
        console.print(Padding(Text(_LEGEND, style="dim"), (0, 0, 0, 2), expand=False))
    for name, stated in sets.items():
        lines = [Text(f"settings={name}", style="cyan"), *(Text(line) for line in words_of(stated))]
        console.print(Padding(Group(*lines), (1, 0, 0, 2), expand=False))
    if not sets:
        console.print(Padding(Text("of papers: none are known"), (0, 0, 0, 2), expand=False))


def _side_by_side(rows: list[list[str]], width: int) -> Iterator[list[list[str]]]:
    """The rows, cut into as many tables as it takes for each to fit; all begin with two columns."""
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    rest = list(range(2, len(widths)))
    while True:
        taken = [0, 1, *rest[:1]]
        for column in rest[1:]:
            if sum(widths[one] for one in (*taken, column)) > width:
                break
            taken.append(column)
        yield [[row[column] for column in taken] for row in rows]
        rest = rest[len(taken) - 2 :]
        if not rest:
            return


def rows_of(method: str, sets: Mapping[str, Stated]) -> Iterator[list[str]]:
    """For each key: its name, the method's own value, and the value of each set of settings."""
    quick = quick_settings(method)
    stated = [key for one in sets.values() for key in dict(flat(one.keys))]
    for key in dict.fromkeys([*quick, *stated]):
        own = "–" if quick.get(key) is None else shown(quick[key])
        said = (
            value_of(one, key) or (SEARCHED if key in one.grid else NOT_STATED)
            for one in sets.values()
        )
        yield [key, own, *said]


def value_of(stated: Stated, key: str) -> str:
    """A set's value of a key for all tasks; empty if it states no value."""
    keys, chosen = dict(flat(stated.keys)), dict(flat(stated.chosen))
    if key in keys:
        return shown(keys[key])
    return f"{shown(chosen[key])} (limbeck's choice)" if key in chosen else ""


def words_of(stated: Stated) -> Iterator[str]:
    """The facts that the table leaves out: source, start, tasks, CNNs, grid, runs, notes."""
    yield f"from: {stated.source}"
    if stated.start:
        yield f"start: {stated.start}"
    if stated.layers:
        yield f"students: {stated.layers} layers"
    # Tasks that have the same together.
    others = [task for task, keys in stated.tasks.items() if keys]
    for keys, tasks in grouped(others, lambda task: keys_shown(stated.tasks[task])).items():
        yield f"{', '.join(tasks)}: {keys}"
    if stated.nets is not None:
        yield f"named CNNs: {keys_shown(stated.nets.keys)}"
    for key, values in stated.grid.items():
        yield f"searched: {key} in {', '.join(map(shown, values))}"
    if stated.runs:
        yield f"runs: {stated.runs}"
    for note in stated.notes:
        yield f"note: {note}"


def keys_shown(keys: Mapping[str, Any]) -> str:
    """Nested keys on one line: `epochs 15, team.student_epochs 10`."""
    return ", ".join(f"{key} {shown(value)}" for key, value in flat(keys))


def shown(value: Any) -> str:
    """A value as it is written in a recipe."""
    if value is None:
        return "taken out"
    if isinstance(value, float):
        # Rates are written as powers.
        if not 0 < abs(value) < 1e-3:
            return f"{value:g}"
        digits, _, power = f"{value:.6e}".partition("e")
        return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value)
