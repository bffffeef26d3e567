"""Passes over rows: how many a stage makes, and what is shown of it.

Part of `limbeck.run`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from limbeck.recipe import Recipe


def length_of(recipe: Recipe, rows: int) -> float:
    """How often a stage sees its rows, with fractions where it stops after so many steps."""
    if recipe.max_steps is None:
        return recipe.passes
    return recipe.max_steps * recipe.batch_size * recipe.accumulation / rows


@contextmanager
def bars(console: Console) -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """`watch(what, total)` adds a bar with the time left, and gives what is told of progress.

    They are gone with the block; nothing is shown where the console is no terminal.
    """
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )

    def watch(what: str, total: int) -> Callable[[int], None]:
        bar = shown.add_task(what, total=total)
        return lambda done: shown.advance(bar, done)

    with shown:
        yield watch
