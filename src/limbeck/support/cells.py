"""Numbers as text, and tables of text: the same in a terminal, on a page and in a card.

Part of `limbeck.support`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

NOTHING = "–"

# A task's name may come from a file: line breaks would end a row, escapes would drive the terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def one_line(text: str) -> str:
    """The text with a space for every run of control characters and line breaks."""
    return _CONTROL.sub(" ", text)


def in_markdown(text: str) -> str:
    """The text in one line without markup: names of classes come from files, and must not end a row or open a tag."""
    return re.sub(r"([|<>*_`\\\[\]~&])", r"\\\1", one_line(text))


@dataclass(frozen=True)
class CellTable:
    """A titled table: headings, then rows; which columns (from 0) hold words and not numbers."""

    title: str
    cells: list[list[str]]
    words: tuple[int, ...] = (0,)

    def markdown(self) -> str:
        """As GitHub's Markdown has it, without the title."""
        heading, *rows = [[in_markdown(cell) for cell in row] for row in self.cells]
        rule = [":---" if at in self.words else "---:" for at in range(len(heading))]
        return "\n".join("| " + " | ".join(row) + " |" for row in (heading, rule, *rows))

    def printed(self, most: int | None = None) -> Group:
        """For a terminal, no more rows than `most`; words are wrapped, numbers are not."""
        table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
        heading, *rows = self.cells
        for at, name in enumerate(heading):
            words = at in self.words
            # As Text: a console reads the brackets of a string as its own markup.
            table.add_column(
                Text(name),
                justify="left" if words else "right",
                overflow="fold" if words else "ellipsis",
                no_wrap=not words,
            )
        for row in rows[:most]:
            table.add_row(*map(Text, row))
        return Group(*[Text(self.title, style="bold")] * bool(self.title), table)


def shown(value: Any, text: Callable[[Any], str] = str) -> str:
    """A value as text; None is a dash."""
    return NOTHING if value is None else text(value)


def magnitude(value: float) -> str:
    """Three significant digits with K, M, G or T: 66_400_000 → "66.4M"."""
    for limit, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= 0.9995 * limit:
            scaled = value / limit
            digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
            return f"{scaled:.{digits}f}{suffix}"
    return f"{value:.0f}"


def duration(seconds: float) -> str:
    """Seconds as "8 s", "12 min" or "3.4 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 9.5 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign; zero after rounding gets no sign."""
    text = f"{value:+.{digits}f}"
    return (text[1:] if float(text) == 0 else text).replace("-", "−")


def decimal(value: float | None, digits: int = 1) -> str:
    """A score; None is a dash."""
    return shown(value, lambda number: f"{number:.{digits}f}")


def percent(share: float) -> str:
    """A share as "91.2 %"."""
    return f"{100 * share:.1f} %"


def milliseconds(value: float, spread: float | None = None) -> tuple[str, str]:
    """Three significant digits of a time, and its spread (or nothing) to the same decimals."""
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}", "" if spread is None else f"{spread:.{digits}f}"
