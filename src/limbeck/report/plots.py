"""The report's drawings, each from plain numbers to one panel: lines, dots, bars, matrices.

Part of `limbeck.report`; `content` decides which runs go into which drawing. A panel's `.svg` goes into a page.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from limbeck.records.facts import ReliabilityPoint
from limbeck.report.svg import INK, MUTED, PAPER, Panel, series_colour, series_dash, series_marker
from limbeck.support.words import short_text

# A reference level, and its label.
_DASHED: dict[str, Any] = {"color": MUTED, "linestyle": (0, (4, 3)), "linewidth": 1.2}
_BESIDE: dict[str, Any] = {
    "textcoords": "offset points", "ha": "right", "color": MUTED, "fontsize": 9
}  # fmt: skip

SCORE_SPAN = 5.0
"""Points of score that an axis of scores shows at least."""

_NAME = 30
"""Characters of a name next to a small drawing; a longer one leaves no room for it."""

Level = tuple[str, float] | None
"""A reference line: its label, and its position."""


@dataclass(frozen=True)
class Series:
    """One line: mean over seeds at each x, and the lowest and highest seed."""

    name: str
    style: int
    """Index into the palette; the same method has the same one all over the report."""
    x: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def line_panel(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    reference: Level = None,
    least_span: float = 0.0,
    scale: Literal["whole", "linear", "log"] = "whole",
    legend: bool = False,
) -> Panel:
    """Lines with bands from the lowest to the highest seed, and a dashed reference level.

    The axis of y covers at least `least_span`, so that a small step does not look like a cliff. `scale` of the axis
    of x: `whole` numbers count things; a `log` axis has a mark at each x. `legend`: the lines' names are below
    the drawing.
    """
    ends = "; ".join(f"{s.name} from {s.mean[0]:.3g} to {s.mean[-1]:.3g}" for s in series)
    beside = f"; {reference[0]} at {reference[1]:.1f}" if reference else ""
    names = (len(series) + (reference is not None)) if legend else 0
    alt = f"{title}. {y_label} by {x_label}: {ends}{beside}."
    panel = Panel(title, alt, height=2.9 + 0.18 * names)
    with panel as axes:
        for line in series:
            colour = series_colour(line.style)
            if len(line.x) > 1:
                axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, lw=0)
            axes.plot(
                line.x, line.mean, color=colour, linestyle=series_dash(line.style),
                marker=series_marker(line.style), label=line.name,
                markevery=max(1, len(line.x) // 8) if len(line.x) > 15 else 1,
            )  # fmt: skip
        if reference is not None:
            said = f"{reference[0]} {reference[1]:.1f}"
            axes.axhline(reference[1], **_DASHED, label=said)
            if not legend:
                place = (1, reference[1])
                axes.annotate(said, place, (-2, 3), ("axes fraction", "data"), **_BESIDE)
        axes.margins(y=0.12)
        axes.set_ylim(widened(axes.get_ylim(), least_span))
        if scale == "log":
            places = sorted({place for line in series for place in line.x})
            axes.set_xscale("log")
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.set_xticks([], minor=True)
        elif scale == "whole":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
        axes.set(xlabel=x_label, ylabel=y_label)
        if legend:
            look: dict[str, Any] = {"fontsize": 9, "frameon": False, "labelcolor": INK}
            panel.figure.legend(loc="outside lower left", **look)  # clear of the lines
    return panel


def widened(limits: tuple[float, float], least: float) -> tuple[float, float]:
    """The limits, or as much more on both sides as they are too near each other."""
    low, high = limits
    more = max(0.0, least - (high - low)) / 2
    return low - more, high + more


def dots(
    title: str,
    groups: Sequence[tuple[str, int, Sequence[float]]],
    *,
    x_label: str,
    reference: Level = None,
    least_span: float = 0.0,
) -> Panel:
    """A row of dots a group, one a run, a bar at the mean; (name, style, values) from the top.

    The axis of x covers at least `least_span`.
    """
    said = "; ".join(
        f"{name.replace(chr(10), ' · ')} {', '.join(f'{value:.1f}' for value in values)}"
        for name, _, values in groups
    )
    beside = f"; {reference[0]} {reference[1]:.1f}" if reference else ""
    lines = max((name.count("\n") + 1 for name, _, _ in groups), default=1)
    height = 1.05 + (0.15 + 0.15 * lines) * len(groups)
    panel = Panel(title, f"{title}. {x_label} of each run: {said}{beside}.", 4.2, height, grid="x")
    with panel as axes:
        for row, (_, style, values) in enumerate(groups):
            axes.plot(
                values, [row] * len(values), linestyle="none", marker=series_marker(style),
                markersize=6, color=series_colour(style), alpha=0.65, markeredgewidth=0,
            )  # fmt: skip
            mean = sum(values) / len(values)
            axes.plot([mean, mean], [row - 0.3, row + 0.3], color=INK, linewidth=1.8)
        if reference is not None:
            axes.axvline(reference[1], **_DASHED)
            place = (reference[1], 0)
            axes.annotate(reference[0], place, (-3, 4), ("data", "axes fraction"), **_BESIDE)
        name_rows(axes, [name for name, _, _ in groups])
        axes.margins(x=0.08)
        axes.set_xlim(widened(axes.get_xlim(), least_span))
        axes.set_xlabel(x_label)
    return panel


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """A name at the left of each row, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.set_ylim(len(names) - 0.4, -0.6)


def stacks(
    title: str, bars: Mapping[str, Mapping[str, float]], *, x_label: str, unit: str
) -> Panel:
    """Horizontal stacked bars from the top; every bar has the same parts in the same order."""
    said = "; ".join(
        f"{name} {', '.join(f'{part} {value:.3g}' for part, value in parts.items())}"
        for name, parts in bars.items()
    )
    panel = Panel(title, f"{title}, {unit}. {said}.", 6.4, 1.0 + 0.34 * len(bars), grid="x")
    with panel as axes:
        for row, parts in enumerate(bars.values()):
            start = 0.0
            for index, (_, value) in enumerate(parts.items()):
                axes.barh(
                    row, value, left=start, height=0.62, color=series_colour(index),
                    edgecolor=PAPER, linewidth=0.8,
                )  # fmt: skip
                start += value
            axes.annotate(
                f"{start:.3g} {unit}", (start, row), xytext=(5, 0), textcoords="offset points",
                va="center", color=INK, fontsize=9,
            )  # fmt: skip
        name_rows(axes, [*bars])
        axes.margins(x=0.14)
        axes.set_xlim(left=0)
        axes.set_xlabel(x_label)
    return panel


def reliability_panel(title: str, points: Sequence[ReliabilityPoint], error: float) -> Panel:
    """Accuracy by confidence, over bins; the fuller a bin, the darker its bar. `error`: expected, 0 to 1."""
    full = [(one, one.confidence or 0.0, one.accuracy or 0.0) for one in points if one.rows]
    said = "; ".join(
        f"{sure:.0%} sure, {right:.0%} right ({one.rows})" for one, sure, right in full
    )
    panel = Panel(title, f"{title}. Accuracy by confidence: {said}.", 3.0, 2.7)
    with panel as axes:
        most = max(one.rows for one, _, _ in full)
        for one, sure, right in full:
            axes.bar(
                (one.low + one.high) / 2, right, width=0.92 * (one.high - one.low),
                color=series_colour(0), alpha=0.2 + 0.8 * (one.rows / most) ** 0.5,
            )  # fmt: skip
            axes.plot(
                [sure - 0.02, sure + 0.02], [sure] * 2,
                color=series_colour(1), linewidth=2.2, solid_capstyle="butt",
            )  # fmt: skip
        # The largest of C probabilities is at least 1 / C, so bins below are always empty.
        lowest = min(one.low for one, _, _ in full)
        axes.plot([lowest, 1], [lowest, 1], color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
        axes.set_xlim(lowest, 1)
        axes.set_ylim(0, 1)
        axes.set(xlabel=f"confidence (error {100 * error:.1f} %)", ylabel="accuracy")
    return panel


# Matrices as coloured cells with their values: layer by layer, class by class, teacher by teacher.


def layer_map(
    title: str,
    matrix: np.ndarray,
    measure: str = "similarity",
    *,
    student_layers: Sequence[int] | None = None,
    teacher_layers: Sequence[int] | None = None,
) -> Panel:
    """Student layers (rows, the first at the bottom) by teacher layers, each value written in.

    The layers' numbers count from 1 where none are given.
    """
    matrix = np.asarray(matrix, dtype=float)
    rows, columns = matrix.shape
    best = np.nanargmax(np.nan_to_num(matrix, nan=-np.inf), axis=1) + 1
    nearest = "; ".join(f"{row} to {column}" for row, column in enumerate(best, start=1))
    alt = f"{title}. {measure} of student and teacher layers; nearest teacher layer: {nearest}."
    width = min(8.5, max(4.2, 0.9 + 0.34 * columns))
    panel = Panel(title, alt, width, max(1.7, 1.0 + 0.34 * rows), grid="none")
    with panel as axes:
        value_cells(axes, matrix, low=min(0.0, float(np.nanmin(matrix))), high=1.0)
        axes.set_xticks(range(1, columns + 1), [*map(str, teacher_layers or range(1, columns + 1))])
        axes.set_yticks(range(1, rows + 1), [*map(str, student_layers or range(1, rows + 1))])
        axes.tick_params(labelcolor=MUTED)
        axes.set(xlabel="teacher layer", ylabel="student layer")
    return panel


def confusion_map(
    title: str,
    labels: Sequence[str],
    predicted: Sequence[str],
    counts: np.ndarray,
    *,
    down: str = "label",
) -> Panel:
    """Counts (label, prediction), the first label at the top; coloured by the share of the label's rows.

    `down`: whose classes the rows of the matrix are.
    """
    counts = np.asarray(counts, dtype=float)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.where(totals > 0, counts / np.maximum(totals, 1), np.nan)
    said = "; ".join(
        f"{label} as {other} {counts[row, column]:.0f}"
        for row, label in enumerate(labels)
        for column, other in enumerate(predicted)
    )
    labels = [short_text(name, _NAME) for name in labels]
    predicted = [short_text(name, _NAME) for name in predicted]
    panel = Panel(
        title,
        f"{title}. Rows by {down} and prediction: {said}.",
        1.6 + 0.075 * max(map(len, labels)) + 0.6 * len(predicted),
        1.5 + 0.075 * min(max(map(len, predicted)), 12) + 0.42 * len(labels),
        "none",
    )
    with panel as axes:
        value_cells(axes, shares, low=0.0, high=1.0, written=counts, text=lambda n: f"{n:,.0f}")
        axes.set_xticks(range(1, len(predicted) + 1), predicted, rotation=40, ha="right")
        axes.set_yticks(range(1, len(labels) + 1), labels)
        axes.invert_yaxis()
        axes.set(xlabel="predicted", ylabel=down)
    return panel


def short(value: float) -> str:
    """Two decimals without the zero before the point; a dash if not finite."""
    if not np.isfinite(value):
        return "–"
    text = f"{value:.2f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def value_cells(
    axes: Axes,
    matrix: np.ndarray,
    *,
    low: float,
    high: float,
    text: Callable[[float], str] = short,
    written: np.ndarray | None = None,
) -> None:
    """A cell for each value of a matrix, coloured from `low` to `high`, the value written in, or `written`'s.

    Rows and columns are at 1, 2, …; non-finite values have no color.
    """
    rows, columns = matrix.shape
    edges = [np.arange(count + 1) + 0.5 for count in (columns, rows)]
    axes.pcolormesh(
        *edges, np.ma.masked_invalid(matrix), cmap="cividis", vmin=low, vmax=high,
        edgecolor=PAPER, linewidth=0.8,
    )  # fmt: skip
    for row, column in np.ndindex(rows, columns):
        value = float(matrix[row, column])
        shown = value if written is None else float(written[row, column])
        # From here on black contrasts more with cividis; either has at least 4.5.
        light = "#000000" if value > low + 0.47 * (high - low) else "#ffffff"
        axes.text(
            column + 1, row + 1, text(shown), ha="center", va="center", fontsize=9,
            color=light if np.isfinite(value) else MUTED,
        )  # fmt: skip
    axes.tick_params(length=0, labelcolor=INK)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
