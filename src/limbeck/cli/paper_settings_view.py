"""The settings that papers state, beside a method's own, as `limbeck methods NAME` shows them.

Part of `limbeck.cli`; loads no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from limbeck.recipe.paper_settings import QUICK, Stated, flat, stated_of
from limbeck.recipe.quick import quick_settings

NOT_STATED = "not stated"
SEARCHED = "searched"
_LEGEND = f"{NOT_STATED}, {SEARCHED}: the {QUICK} value is used"


def show_stated(method: str, console: Console) -> None:
    """A table of the method's own settings and those of its papers, and what they say beside keys."""
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
    """For each key: its name, the method's own value, and what each set of settings states."""
    quick = quick_settings(method)
    stated = {name: dict(flat(one.keys)) for name, one in sets.items()}
    keys = [*quick, *(key for one in stated.values() for key in one if key not in quick)]
    for key in dict.fromkeys(keys):
        own = "–" if quick.get(key) is None else shown(quick[key])
        yield [key, own, *(_said(one, key) or NOT_STATED for one in sets.values())]


def _said(stated: Stated, key: str) -> str:
    return value_of(stated, key) or (SEARCHED if key in stated.grid else "")


def value_of(stated: Stated, key: str) -> str:
    """What a set says of a key for all tasks; empty if it says nothing."""
    keys, chosen = dict(flat(stated.keys)), dict(flat(stated.chosen))
    if key in keys:
        return shown(keys[key])
    return f"{shown(chosen[key])} (limbeck's choice)" if key in chosen else ""


def words_of(stated: Stated) -> Iterator[str]:
    """What the table does not hold: source, start, tasks, CNNs, grid, runs, notes."""
    yield f"from: {stated.source}"
    if stated.start:
        yield f"start: {stated.start}"
    for tasks, keys in exceptions(stated):
        yield f"{', '.join(tasks)}: {keys}"
    if stated.nets is not None:
        yield f"named CNNs: {keys_shown(stated.nets.keys)}"
    for key, values in stated.grid.items():
        yield f"searched: {key} in {', '.join(map(shown, values))}"
    if stated.runs:
        yield f"runs: {stated.runs}"
    for note in stated.notes:
        yield f"note: {note}"


def exceptions(stated: Stated) -> list[tuple[list[str], str]]:
    """Tasks that have something otherwise, those that have the same together."""
    found: dict[str, list[str]] = {}
    for task, keys in stated.tasks.items():
        if keys:
            found.setdefault(keys_shown(keys), []).append(task)
    return [(tasks, keys) for keys, tasks in found.items()]


def keys_shown(keys: Mapping[str, Any]) -> str:
    """Nested keys on one line: `epochs 15, team.student_epochs 10`."""
    return ", ".join(f"{key} {shown(value)}" for key, value in flat(keys))


def shown(value: Any) -> str:
    """A value as it is written in a recipe."""
    if value is None:
        return "taken out"
    if isinstance(value, float):
        return _short(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return str(value)


def _short(value: float) -> str:
    if not 0 < abs(value) < _SMALL:
        return f"{value:g}"
    digits, _, power = f"{value:.6e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"


# Rates are written as powers below.
_SMALL = 1e-3
