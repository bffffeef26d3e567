"""The list of findings on a terminal: errors first, each with its fix.

Part of `limbeck.preflight`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from limbeck.support.errors import Problem

_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def errors_of(problems: Sequence[Problem]) -> list[Problem]:
    """Those that must be fixed before a run can start."""
    return [problem for problem in problems if problem.severity == "error"]


def render(problems: Sequence[Problem]) -> RenderableType:
    """One list: errors, then warnings, then what is good to know, and how many of each."""
    if not problems:
        return Text("pre-flight: nothing to report", style="green")
    errors = errors_of(problems)
    warnings = [problem for problem in problems if problem.severity == "warning"]
    notes = [problem for problem in problems if problem.severity == "note"]
    title = f"pre-flight: {_count(len(errors), 'error')}, {_count(len(warnings), 'warning')}"
    title += f", {_count(len(notes), 'note')}" if notes else ""
    parts: list[RenderableType] = [Text(title)]
    for problem in (*errors, *warnings, *notes):
        line = Text.assemble((problem.severity, _STYLES[problem.severity]), "  ", problem.message)
        parts.append(Padding(line, (0, 0, 0, 2)))
        if problem.fix:
            label = "" if problem.severity == "note" else "fix: "
            parts.append(Padding(Text(label + problem.fix, style="dim"), (0, 0, 0, 6)))
    return Group(*parts)


def show(problems: Sequence[Problem], console: Console | None = None) -> None:
    """Print the list, to standard error unless a console is given."""
    (console or Console(stderr=True, markup=False, emoji=False)).print(render(problems))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
