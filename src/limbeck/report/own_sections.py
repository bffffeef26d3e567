"""A part of a page: what every section is made of. Part of `limbeck.report`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from limbeck.report.svg import COLOURS, series_dash, series_marker


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
