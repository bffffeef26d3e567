"""How the command line prints: a console for results, one for trouble, the list of what to fix.

Colours follow `NO_COLOR` and the terminal; user values are
printed as they are, never read as markup.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from limbeck.errors import Problem

PIPED_WIDTH = 160  # columns when nobody looks: a pipe or a file should not get lines cut at 80


def output() -> Console:
    """The console for results, on standard output. Of several processes only the first speaks."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        quiet=os.environ.get("RANK", "0") != "0",
    )


def trouble() -> Console:
    """The console for errors and notes, on standard error."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def show_scores(scores: Mapping[str, float | None], title: str = "") -> None:
    """Print scores, 0 to 100, on one line; a score that is not a number shows as a dash."""
    shown = [f"{name} {'–' if value is None else f'{value:.1f}'}" for name, value in scores.items()]
    line = "  ".join([title, *shown] if title else shown)
    output().print(line, markup=False, soft_wrap=True)


def show_problems(problems: Sequence[Problem]) -> None:
    """Print everything that is wrong, numbered, each with its fix."""
    console = trouble()
    if len(problems) > 1:
        _print(console, Text(f"{len(problems)} things to fix:", style="bold red"), indent=0)
    for number, problem in enumerate(problems, start=1):
        wrong = problem.severity == "error"
        style = "red" if wrong else "yellow"
        label = f"{number}. " if len(problems) > 1 else ""
        text = Text(label, style=f"bold {style}")
        text.append(f"{problem.severity}: ", style=f"bold {style}")
        text.append(problem.message, style=style)
        _print(console, text, indent=0)
        if problem.fix:
            _print(console, Text.assemble(("fix: ", "bold"), problem.fix), indent=3)


def show_stopped() -> None:
    """The word after Ctrl-C."""
    console = trouble()
    console.print()
    console.print(
        Text("stopped; run the same command again to continue", style="yellow"), soft_wrap=True
    )


class Notes(logging.Handler):
    """Prints limbeck's own log messages as notes, without the time and place a log file wants."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        _print(trouble(), Text.assemble(("note: ", "yellow"), record.getMessage()), indent=0)


def show_notes() -> None:
    """Let the library's messages of warning level and above reach the user, once each."""
    logger = logging.getLogger("limbeck")
    if not any(isinstance(handler, Notes) for handler in logger.handlers):
        logger.addHandler(Notes(logging.WARNING))


def _print(console: Console, text: Text, indent: int) -> None:
    # A terminal gets words wrapped under the indent; a log gets whole lines, which can be searched.
    if console.is_terminal:
        console.print(Padding(text, (0, 0, 0, indent)))
    else:
        console.print(Text(" " * indent).append_text(text), soft_wrap=True)
