"""How a line of text is printed: wrapped at words on a terminal, unwrapped in a pipe or a log file."""

import shlex
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich import progress
from rich.console import Console

from limbeck.support.cells import duration


def messages(*, shown: bool = True) -> Console:
    """Make the console for messages of work in progress, on standard error."""
    whole = not sys.stderr.isatty()
    return Console(
        stderr=True, quiet=not shown, markup=False, emoji=False, highlight=False, soft_wrap=whole
    )


def print_line(console: Console, line: str, *, hang: int = 0) -> None:
    """Print one line, as it is: no markup is read.

    A terminal gets it wrapped at words, later lines indented by `hang` columns. A log file gets one line, which can be
    searched.
    """
    lines = [line]
    if console.is_terminal:
        lines = textwrap.wrap(
            line,
            max(console.width, 20),
            subsequent_indent=" " * hang,
            break_long_words=False,  # a path or a name stays one that can be copied
            break_on_hyphens=False,
        )
    _print(console, lines)


def print_command(console: Console, label: str, command: str, *, hang: int = 4) -> None:
    """Print a shell command behind a label; a command that a terminal wraps can still be pasted."""
    words = [shlex.quote(word) for word in shlex.split(command)]
    lines = [label + words[0]]
    for word in words[1:]:
        if console.is_terminal and len(lines[-1]) + len(word) + 3 > console.width:
            lines[-1] += " \\"
            lines.append(" " * hang + word)
        else:
            lines[-1] += f" {word}"
    _print(console, lines)


def _print(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)


# One bar for everything that counts its steps: its name, its progress, and the time left.


def step_bar(console: Console) -> progress.Progress:
    """A bar that disappears when it stops; tasks' descriptions are at its left."""
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("left"),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


@contextmanager
def bars(console: Console) -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """`watch(what, total)` adds a bar with the time left, and returns a function that reports progress.

    They are gone with the block; nothing is shown where the console is no terminal.
    """
    with step_bar(console) as shown:

        def watch(what: str, total: int) -> Callable[[int], None]:
            bar = shown.add_task(what, total=total)
            return lambda done: shown.advance(bar, done)

        yield watch


@contextmanager
def phases(*, shown: bool) -> Iterator[Callable[[str, int | None], Callable[[int], None]]]:
    """Show the phases of a long task, on standard error: a bar on a terminal, otherwise one line per phase.

    The yielded function begins a phase with a number of steps (None: unknown) and returns one that moves its bar.
    """
    console = messages(shown=shown)
    bar = step_bar(console)
    bar.disable = not console.is_terminal

    def begin(name: str, total: int | None) -> Callable[[int], None]:
        if bar.disable:
            console.print(name)
        for task in bar.task_ids:
            bar.remove_task(task)
        task = bar.add_task(name, total=total)
        return lambda done: bar.advance(task, done)

    with bar:
        yield begin


# Rows of unknown number: a bar with rows per second and the time left, or lines in a log.


_LINE_SECONDS = 60.0


@contextmanager
def row_bar(
    console: Console, share: Callable[[float], float | None]
) -> Iterator[Callable[[float], None]]:
    """Yield a function that reports finished rows; a log gets one line per minute.

    Args:
        console: where progress is shown.
        share: the finished part of all work, by the rows so far; None if it is unknown.
    """
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
        # Rows are read in chunks, so that their bytes come in jumps.
        speed_estimate_period=300,
    )
    first = share(0)
    task = bar.add_task("", total=None if first is None else 1.0)
    bar.update(task, completed=first)
    began = last = time.monotonic()
    rows = 0.0

    def advance(count: float) -> None:
        nonlocal rows, last
        rows += count
        now, done = time.monotonic(), share(rows)
        said = f"{rows:,.0f} rows, {rows / max(now - began, 1e-9):,.1f} rows/s"
        bar.update(task, description=said, completed=done)
        if not console.is_terminal and now - last >= _LINE_SECONDS:
            last = now
            if done is not None and first is not None and done > first:
                left = (now - began) * (1 - done) / (done - first)
                said += f", about {duration(left)} left"
            console.print(said)

    with bar:
        yield advance
