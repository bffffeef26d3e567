"""How the command line prints: a console for results, one for trouble, the list of what to fix.

Colours follow `NO_COLOR` and the terminal; user values are
printed as they are, never read as markup.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from limbeck.support.errors import Problem
from limbeck.support.terminal import print_command, print_line
from limbeck.support.words import count_of

if TYPE_CHECKING:
    from limbeck.records.facts import ClassificationScores, RowTests

# Columns if the output is not a terminal: a pipe or a file should not get lines cut at 80.
PIPED_WIDTH = 160
# A launcher ends the other processes of one that has failed. The first may come to the error seconds after another.
_FIRST_SECONDS, _NEXT_SECONDS = 30.0, 0.2


def rank() -> int:
    """The number that a launcher gave this process; 0 without one."""
    found = os.environ.get("RANK", "")
    return int(found) if found.isdecimal() else 0


def output() -> Console:
    """The console for results, on standard output. With several processes only the first one prints."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        quiet=rank() > 0,
    )


def trouble() -> Console:
    """The console for errors and notes, on standard error."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def say(line: str, *, hang: int = 0) -> None:
    """Print a line of a result."""
    print_line(output(), line, hang=hang)


def say_command(label: str, command: str) -> None:
    """Print a command to run next; on a terminal in lines that a shell reads as one."""
    print_command(output(), label, command)


def show_scores(scores: Mapping[str, float | None], title: str = "") -> None:
    """Print scores on one line."""
    from limbeck.records.words import scores_said

    say(" ".join([title, scores_said(scores)] if title else [scores_said(scores)]))


def show_loading(command: str) -> None:
    """Say that a command has begun: its libraries alone take from seconds to a minute to load."""
    if rank() == 0:
        print_line(trouble(), f"{command}: loading PyTorch and Transformers …")


def show_problems(problems: Sequence[Problem]) -> None:
    """Print everything that is wrong, numbered, each with its fix; errors first.

    With several processes all of them usually have the same error. The others wait before they print: when the first
    one has printed and ended, its launcher ends them too.
    """
    console = trouble()
    if rank():
        time.sleep(_FIRST_SECONDS + _NEXT_SECONDS * rank())
        _print(console, Text(f"process {rank()}:", style="bold red"), indent=0)
    problems = sorted(problems, key=lambda one: one.severity != "error")
    errors = sum(one.severity == "error" for one in problems)
    if len(problems) > 1:
        heading = f"{count_of(errors, 'thing')} to fix"
        if warnings := len(problems) - errors:
            heading += f", {count_of(warnings, 'warning')}"
        _print(console, Text(f"{heading}:", style="bold red"), indent=0)
    for number, problem in enumerate(problems, start=1):
        wrong = problem.severity == "error"
        style = "red" if wrong else "yellow"
        label = f"{number}. " if len(problems) > 1 else ""
        text = Text(label, style=f"bold {style}")
        text.append(f"{problem.severity}: ", style=f"bold {style}")
        text.append(problem.message, style=style)
        _print(console, text, indent=0)
        if problem.fix:
            label = "" if problem.severity == "note" else "fix: "
            _print(console, Text.assemble((label, "bold"), problem.fix), indent=3)


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
    # A terminal gets words wrapped under the indent; a log gets complete lines, which can be searched.
    if console.is_terminal:
        console.print(Padding(text, (0, 0, 0, indent)))
    else:
        console.print(Text(" " * indent).append_text(text), soft_wrap=True)


# More do not fit a screen.
_MOST_CLASSES = 40
_MOST_EXAMPLES = 5


def show_classification(found: ClassificationScores, tests: RowTests | None) -> None:
    """Print scores of all classes and of each class, the confusion matrix and the worst disagreements."""
    from limbeck.tables import classes

    tables = classes.class_tables(found, _MOST_EXAMPLES)
    for table in (*tables, classes.confusion_table(found, found.student)):
        if table is not None:
            output().print(table.printed(_MOST_CLASSES))
    if (more := len(found.classes) - _MOST_CLASSES) > 0:
        say(f"{more} more classes: --json shows them")
    for line in classes.class_words(found, tests):
        say(line)
