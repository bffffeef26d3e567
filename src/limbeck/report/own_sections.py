"""A part of a page: what every section is made of. Part of `limbeck.report`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from limbeck.report.svg import COLOURS, series_dash, series_marker
from limbeck.support.registry import Registry


@dataclass(frozen=True)
class SectionTable:
    """A titled table: headings, then rows; which columns (from 0) hold words and not numbers."""

    title: str
    cells: list[list[str]]
    words: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Section:
    """A heading, a sentence on how to read it, its tables, drawings with the legend they share, and notes."""

    key: str
    title: str
    lead: str
    drawings: list[str]
    legend: list[dict[str, Any]] = field(default_factory=list)
    layout: Literal["", "wide", "small"] = ""
    tables: list[SectionTable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def legend_entry(name: str, style: int, patch: bool = False) -> dict[str, Any]:
    """A name with the colour, marker and dash of its style."""
    dash = series_dash(style)
    return {
        "name": name,
        "colour": f"var(--series-{style % COLOURS})",
        "marker": series_marker(style),
        "dash": "" if isinstance(dash, str) else " ".join(str(2 * part) for part in dash[1]),
        "patch": patch,
    }


@dataclass(frozen=True)
class PagePart:
    """What is measured of a finished run beside its record, and shown on its page.

    Attributes:
        files: patterns of the files that it keeps in the run's folder.
        sections: from the folder to what its page shows.
    """

    files: tuple[str, ...]
    sections: Callable[[Path], list[Section]]


PAGE_PARTS: Registry[PagePart] = Registry("part of a run's page")


def page_parts() -> list[PagePart]:
    """All that are known."""
    return [PAGE_PARTS.get(name) for name in PAGE_PARTS]
