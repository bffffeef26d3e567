"""A compression's results, as a table, a drawing, a page and a file. Part of `limbeck.compressing`."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import LogLocator

from limbeck.compressing.budget import amount
from limbeck.compressing.front import FrontPoint
from limbeck.report.page import write_sections
from limbeck.report.sections import Section
from limbeck.report.svg import INK, MUTED, Panel, series_colour, series_marker, standalone
from limbeck.support import files
from limbeck.support.cells import CellTable, magnitude, milliseconds

FRONT_NAME, DRAWING_NAME, PAGE_NAME = "front.json", "front.svg", "front.html"
_KINDS = ("student", "static student", "teacher", "cascade")


def _kind(point: FrontPoint) -> str:
    static = point.kind == "student" and point.name.startswith("static")
    return "static student" if static else point.kind


def front_table(points: Sequence[FrontPoint], metric: str) -> CellTable:
    """A row a point, the best on the front first; scores are of the rows that chose nothing."""
    teacher = next(one for one in points if one.kind == "teacher")
    heading = [
        "model",
        "mark",
        "form",
        "MB",
        "ms",
        "parameters",
        "memory MB",
        metric,
        "of teacher",
        "seeds",
    ]
    heading.append("rows that chose")
    rows = []
    order = sorted(points, key=lambda one: (not one.on_front, -one.chosen_on, one.costs.size))
    for one in order:
        marks = "★" * one.recommended + "●" * one.on_front + "\u00a0over" * (not one.fits)
        rows.append(
            [
                one.name,
                marks.strip(),
                one.precision,
                f"{one.costs.size / 1e6:.2f}",
                milliseconds(one.costs.latency)[0],
                magnitude(one.costs.parameters),
                f"{one.costs.memory / 1e6:.0f}",
                f"{one.score:.1f}",
                f"{100 * one.score / teacher.score:.1f} %" if teacher.score > 0 else "–",
                _spread(one.seeds),
                f"{one.chosen_on:.1f}",
            ]
        )
    return CellTable("", [heading, *rows], (0, 1, 2))


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else "–"
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f}"


def notes_of(found: dict[str, Any]) -> list[str]:
    """The notes below the table."""
    return [
        "★ recommended; ● on the front: no other is as good on the rows that chose, as small and as fast; over: beyond "
        "the budget.",
        "Scores are on the half of the dev rows that selected nothing; the other half selected epochs, trials, the "
        "front and the recommended model.",
        "seeds: before the export, mean and standard deviation over trainings; the best on the rows that chose is the "
        "one exported.",
        f"Latency: {found['condition']}; without tokenization.",
        *found["notes"],
    ]


def drawing(points: Sequence[FrontPoint], metric: str) -> Panel:
    """Score against size and against latency, the front as a line."""
    said = "; ".join(
        f"{one.name} {one.precision} {one.score:.1f} at {amount('size', one.costs.size)}, "
        f"{amount('latency', one.costs.latency)}"
        for one in points
    )
    panel = Panel("Score against size and latency", f"{metric}: {said}.", 9.2, 3.4, beside=2)
    with panel:
        sides = (("size", 1e6, "size on disk, MB"), ("latency", 1.0, "latency, ms"))
        for axes, (name, unit, label) in zip(panel.axes, sides, strict=True):
            named: dict[str, Any] = {}
            for one in points:
                place = getattr(one.costs, name) / unit
                style = _KINDS.index(_kind(one))
                (named[_kind(one)],) = axes.plot(
                    place, one.score, linestyle="none", marker=series_marker(style), markersize=7,
                    color=series_colour(style), fillstyle="full" if one.fits else "none", markeredgewidth=1.2,
                )  # fmt: skip
                if one.recommended:
                    axes.plot(
                        place, one.score, linestyle="none", marker="o", markersize=14, fillstyle="none", color=INK
                    )  # fmt: skip
            best = sorted(
                (one for one in points if one.on_front), key=lambda one: getattr(one.costs, name)
            )
            line: list[FrontPoint] = []
            for one in best:  # of a front in three costs, the best points in this one
                if not line or one.chosen_on > line[-1].chosen_on:
                    line.append(one)
            axes.plot(
                [getattr(one.costs, name) / unit for one in line], [one.score for one in line],
                color=MUTED, linewidth=1.2, zorder=1,
            )  # fmt: skip
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
            axes.margins(x=0.08, y=0.12)
            axes.set(xlabel=label, ylabel=metric)
        panel.axes[0].legend([*named.values()], [*named], loc="lower right", frameon=False)
    return panel


def write_front(folder: Path, points: Sequence[FrontPoint], found: dict[str, Any]) -> None:
    """Write `front.json`, the drawing and the page; `found` has the facts in addition to the points."""
    whole = {**found, "points": [one.model_dump() for one in points]}
    files.write_whole(folder / FRONT_NAME, json.dumps(whole, indent=1) + "\n")
    panel = drawing(points, found["metric"])
    files.write_whole(folder / DRAWING_NAME, standalone(panel.svg))
    section = Section(
        "front",
        "The front",
        f"{found['reason']} The circle is the recommended model, the line the front; hollow: beyond the budget.",
        [panel],
        [],
        "wide",
        [front_table(points, found["metric"])],
        notes_of(found),
    )
    tried = [["trial", "candidate", "precision", "rows", "score"]]
    for at, one in enumerate(found["trials"]):
        precision, rows = one["candidate"]["precision"], f"{one['rows']:,}"
        tried.append([str(at), one["words"], precision, rows, one["said"]])
    trials = Section(
        "trials",
        "Trials",
        "Short trainings; scores are of the rows that choose.",
        [],
        tables=[CellTable("", tried, (1, 2))],
    )
    write_sections(
        folder / PAGE_NAME,
        [section, trials],
        title=f"Students of {found['teacher']} within {found['budget']}",
        subtitle=f"{len(points)} models, {len(found['trials'])} trials, {found['task']}",
        footer="Written by limbeck compress from its measurements.",
    )
