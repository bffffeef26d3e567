"""Writes the tables of `docs/settings.md` from the recipes: `python scripts/settings_page.py`.

A test holds the page equal to what this would write, so that neither can change alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from limbeck.cli.methods_command import shown, value_of
from limbeck.recipe import catalog
from limbeck.recipe.paper_settings import Stated, flat, stated_of
from limbeck.recipe.quick import quick_settings

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
MARK = "<!-- From here on written by scripts/settings_page.py. -->\n"

# Settings, with the methods that have them and by which name.
Group = tuple[Stated, list[tuple[str, str]]]
# The first rows of each table.
_FIRST = ("epochs", "lr", "batch_size", "max_length", "warmup", "weight_decay", "select_by")


def generated() -> str:
    """Everything below the mark."""
    by_source = groupby(_groups(), key=lambda group: group[0].source)
    return "\n".join(line for _, groups in by_source for line in _source([*groups]))


def _source(groups: list[Group]) -> Iterator[str]:
    """One paper or release: the notes that all of its sets share, then each set."""
    first, *others = (stated for stated, _ in groups)
    shared = {line for line in first.notes if all(line in other.notes for other in others)}
    yield f"### {first.source}"
    yield ""
    if shared:
        yield from (f"- {line}" for line in first.notes if line in shared)
        yield ""
    for stated, users in groups:
        yield from _section(stated, users, shared)


def _words(stated: Stated) -> Iterator[tuple[str, str]]:
    """Rows of the table that are no recipe keys: start, runs, and named CNNs' own settings."""
    yield "start", stated.start
    yield "runs", stated.runs
    if stated.nets is not None:
        keys = ", ".join(f"`{key}` {shown(value)}" for key, value in flat(stated.nets.keys))
        yield "named CNNs", keys + f"; runs: {stated.nets.runs}" * bool(stated.nets.runs)


def _groups() -> list[Group]:
    """Sets of settings that are the same, with the methods that have them and by which name."""
    found: list[Group] = []
    for entry in catalog.available():
        for name, stated in stated_of(entry.method).items():
            for known, users in found:
                if known == stated:
                    users.append((entry.method, name))
                    break
            else:
                found.append((stated, [(entry.method, name)]))
    return sorted(found, key=lambda group: group[0].source)


def _section(stated: Stated, users: list[tuple[str, str]], shared: set[str]) -> Iterator[str]:
    yield f"#### {_heading(users)}"
    yield ""
    yield "| setting | stated | for some tasks | searched |"
    yield "|---|---|---|---|"
    for key in _keys(stated, users[0][0]):
        cells = _cells(stated, key)
        if any(cells):
            yield f"| `{key}` | {' | '.join(cells)} |"
    yield from (f"| {name} | {words} |  |  |" for name, words in _words(stated) if words)
    yield ""
    if own := [line for line in stated.notes if line not in shared]:
        yield from (f"- {line}" for line in own)
        yield ""


def _heading(users: list[tuple[str, str]]) -> str:
    by_name: dict[str, list[str]] = {}
    for method, name in users:
        by_name.setdefault(name, []).append(f"`{method}`")
    return "; ".join(f"`settings={name}` of {', '.join(known)}" for name, known in by_name.items())


def _keys(stated: Stated, method: str) -> list[str]:
    first = [key for key in quick_settings(method) if key.startswith("first_stage.")]
    said = [key for keys in (stated.keys, *stated.tasks.values()) for key, _ in flat(keys)]
    return list(dict.fromkeys([*_FIRST, *first, *said, *stated.grid]))


def _cells(stated: Stated, key: str) -> list[str]:
    """What holds for all tasks, for some of them, and what was searched; empty where nothing is said."""
    tasks: dict[str, list[str]] = {}
    for task, own in stated.tasks.items():
        for one, value in flat(own):
            if one == key:
                tasks.setdefault(shown(value), []).append(task)
    return [
        value_of(stated, key),
        "; ".join(f"{value}: {', '.join(names)}" for value, names in tasks.items()),
        ", ".join(map(shown, stated.grid.get(key, []))),
    ]


def page() -> str:
    """The page as it should be."""
    return PAGE.read_text(encoding="utf-8").partition(MARK)[0] + MARK + "\n" + generated()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"written: {PAGE}\n")
