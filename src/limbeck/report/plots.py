"""The report's drawings, each from plain numbers to one inline SVG.

Part of `limbeck.report`; which runs go into which drawing is decided in `content`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from limbeck.evaluation.calibration import Bin
from limbeck.report.maps import value_cells
from limbeck.report.svg import INK, MUTED, PAPER, Panel, series_colour, series_dash, series_marker

# A reference level, and what stands beside it.
_DASHED: dict[str, Any] = {"color": MUTED, "linestyle": (0, (4, 3)), "linewidth": 1.2}
_BESIDE: dict[str, Any] = {
    "textcoords": "offset points",
    "ha": "right",
    "color": MUTED,
    "fontsize": 9,
}

SCORE_SPAN = 5.0
"""Points of score that an axis of scores shows at least."""


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


@dataclass(frozen=True)
class StackedBars:
    """One bar of parts that add up to a whole."""

    name: str
    parts: tuple[tuple[str, float], ...]


def lines(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    reference: tuple[str, float] | None = None,
    least_span: float | None = None,
) -> str:
    """`line_panel`, as it stands in a page."""
    return line_panel(
        title,
        series,
        x_label=x_label,
        y_label=y_label,
        reference=reference,
        least_span=least_span,
    ).svg


def line_panel(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    reference: tuple[str, float] | None = None,
    least_span: float | None = None,
    whole: bool = True,
    legend: bool = False,
    log: bool = False,
) -> Panel:
    """Lines with bands from the lowest to the highest seed, and a dashed reference level.

    The axis of y covers at least `least_span`, so that a small step does not look like a cliff. `whole`: x counts
    something. `legend`: the lines' names stand in the drawing. `log`: the axis of x is logarithmic, with a mark at
    each x.
    """
    ends = "; ".join(f"{s.name} from {s.mean[0]:.3g} to {s.mean[-1]:.3g}" for s in series)
    beside = f"; {reference[0]} at {reference[1]:.1f}" if reference else ""
    panel = Panel(title, f"{title}. {y_label} by {x_label}: {ends}{beside}.")
    with panel as axes:
        for line in series:
            colour = series_colour(line.style)
            if len(line.x) > 1:
                axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.16, lw=0)
            many = len(line.x) > 15
            axes.plot(
                line.x,
                line.mean,
                color=colour,
                linestyle=series_dash(line.style),
                marker=series_marker(line.style),
                markevery=max(1, len(line.x) // 8) if many else 1,
                label=line.name,
            )
        if reference is not None:
            said = f"{reference[0]} {reference[1]:.1f}"
            axes.axhline(reference[1], **_DASHED, label=said)
            if not legend:  # which would lie on it
                place = (1, reference[1])
                axes.annotate(said, place, (-2, 3), ("axes fraction", "data"), **_BESIDE)
        axes.margins(y=0.12)
        if least_span is not None:
            axes.set_ylim(_widened(axes.get_ylim(), least_span))
        if log:
            places = sorted({place for line in series for place in line.x})
            axes.set_xscale("log")
            axes.set_xticks(places, [f"{place:g}" for place in places])
            axes.set_xticks([], minor=True)
        elif whole:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
        axes.set(xlabel=x_label, ylabel=y_label)
        if legend:
            axes.legend(fontsize=9, frameon=False, labelcolor=INK)
    return panel


def dots(
    title: str,
    groups: Sequence[tuple[str, int, Sequence[float]]],
    *,
    x_label: str,
    reference: tuple[str, float] | None = None,
    least_span: float | None = None,
) -> str:
    """A row of dots a group, one a run, a bar at the mean; (name, style, values) from the top.

    The axis of x covers at least `least_span`.
    """
    said = "; ".join(
        f"{name.replace(chr(10), ' · ')} {', '.join(f'{value:.1f}' for value in values) or 'none'}"
        for name, _, values in groups
    )
    beside = f"; {reference[0]} {reference[1]:.1f}" if reference else ""
    lines = max((name.count("\n") + 1 for name, _, _ in groups), default=1)
    height = 1.05 + (0.15 + 0.15 * lines) * len(groups)
    panel = Panel(title, f"{title}. {x_label} of each run: {said}{beside}.", 4.2, height, grid="x")
    with panel as axes:
        for row, (_, style, values) in enumerate(groups):
            if not values:
                continue
            colour = series_colour(style)
            axes.plot(
                values,
                [row] * len(values),
                linestyle="none",
                marker=series_marker(style),
                markersize=6,
                color=colour,
                alpha=0.65,
                markeredgewidth=0,
            )
            mean = sum(values) / len(values)
            axes.plot([mean, mean], [row - 0.3, row + 0.3], color=INK, linewidth=1.8)
        if reference is not None:
            axes.axvline(reference[1], **_DASHED)
            place = (reference[1], 0)
            axes.annotate(reference[0], place, (-3, 4), ("data", "axes fraction"), **_BESIDE)
        axes.set_yticks(range(len(groups)), [name for name, _, _ in groups])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        axes.set_ylim(len(groups) - 0.4, -0.6)
        axes.margins(x=0.08)
        if least_span is not None:
            axes.set_xlim(_widened(axes.get_xlim(), least_span))
        axes.set_xlabel(x_label)
    return panel.svg


def _widened(limits: tuple[float, float], least: float) -> tuple[float, float]:
    """The limits, or as much more on both sides as they are too near each other."""
    low, high = limits
    more = max(0.0, least - (high - low)) / 2
    return low - more, high + more


def active_layers(
    title: str, epochs: Sequence[tuple[int, Sequence[Sequence[int]]]], total: int | None = None
) -> str:
    """Which teacher layer taught which student layer in each epoch: (epoch, pairs).

    `total` is the teacher's number of layers, so that drawings of one teacher share their scale.
    """
    by_slot: dict[int, tuple[list[int], list[int]]] = {}
    for epoch, pairs in epochs:
        for student, teacher in pairs:
            xs, ys = by_slot.setdefault(student, ([], []))
            xs.append(epoch)
            ys.append(teacher)
    said = "; ".join(
        f"student layer {slot}: {', '.join(map(str, ys))}" for slot, (_, ys) in by_slot.items()
    )
    panel = Panel(title, f"{title}. Teacher layer of each epoch for {said}.", 4.2, 2.6)
    with panel as axes:
        for slot in sorted(by_slot):
            xs, ys = by_slot[slot]
            colour = series_colour(slot - 1)
            # The faint line only leads the eye: layers are sampled again, nothing lies between.
            axes.plot(xs, ys, linewidth=0.9, color=colour, alpha=0.35)
            axes.plot(
                xs,
                ys,
                linestyle="none",
                color=colour,
                marker=series_marker(slot - 1),
                markersize=5.5,
            )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        if total is not None:
            axes.set_ylim(0.4, total + 0.6)
        axes.set(xlabel="epoch", ylabel="teacher layer")
    return panel.svg


def stacks(title: str, bars: Sequence[StackedBars], *, x_label: str, unit: str) -> str:
    """Horizontal stacked bars from the top; every bar has the same parts in the same order."""
    said = "; ".join(
        f"{bar.name} {', '.join(f'{part} {value:.3g}' for part, value in bar.parts)}"
        for bar in bars
    )
    panel = Panel(title, f"{title}, {unit}. {said}.", 6.4, 1.0 + 0.34 * len(bars), grid="x")
    with panel as axes:
        for row, bar in enumerate(bars):
            start = 0.0
            for index, (_, value) in enumerate(bar.parts):
                axes.barh(
                    row,
                    value,
                    left=start,
                    height=0.62,
                    color=series_colour(index),
                    edgecolor=PAPER,
                    linewidth=0.8,
                )
                start += value
            axes.annotate(
                f"{start:.3g} {unit}",
                (start, row),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                color=INK,
                fontsize=9,
            )
        axes.set_yticks(range(len(bars)), [bar.name for bar in bars])
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.margins(x=0.14)
        axes.set_xlim(left=0)
        axes.set_xlabel(x_label)
    return panel.svg


# The drawings of a classifier: how sure it is and how right, and what it takes for what. Part of
# `limbeck.report`, beside `plots`.


def reliability(title: str, bins: Sequence[Bin], error: float) -> str:
    """`reliability_panel`, as it stands in a page."""
    return reliability_panel(title, bins, error).svg


def reliability_panel(title: str, bins: Sequence[Bin], error: float) -> Panel:
    """Accuracy by confidence, over bins; the fuller a bin, the darker its bar. `error`: expected, 0 to 1."""
    full = [part for part in bins if part.count]
    said = "; ".join(
        f"{part.confidence:.0%} sure, {part.accuracy:.0%} right ({part.count})" for part in full
    )
    panel = Panel(title, f"{title}. Accuracy by confidence: {said}.", 3.0, 2.7)
    with panel as axes:
        most = max(part.count for part in full)
        for part in full:
            axes.bar(
                (part.low + part.high) / 2,
                part.accuracy,
                width=0.92 * (part.high - part.low),
                color=series_colour(0),
                alpha=0.2 + 0.8 * (part.count / most) ** 0.5,
            )
            axes.plot(
                [part.confidence - 0.02, part.confidence + 0.02],
                [part.confidence] * 2,
                color=series_colour(1),
                linewidth=2.2,
                solid_capstyle="butt",
            )
        # The largest of C probabilities is at least 1 / C, so bins below are always empty.
        lowest = min(part.low for part in full)
        axes.plot([lowest, 1], [lowest, 1], color=MUTED, linestyle=(0, (4, 3)), linewidth=1)
        axes.set_xlim(lowest, 1)
        axes.set_ylim(0, 1)
        axes.annotate(
            f"error {100 * error:.1f} %",
            (0.04, 0.92),
            xycoords="axes fraction",
            color=INK,
            fontsize=9,
        )
        axes.set(xlabel="confidence", ylabel="accuracy")
    return panel


def confusion_map(
    title: str,
    labels: Sequence[str],
    predicted: Sequence[str],
    counts: np.ndarray,
    *,
    down: str = "label",
) -> str:
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
    longest = max(map(len, labels))
    panel = Panel(
        title,
        f"{title}. Rows by {down} and prediction: {said}.",
        1.6 + 0.075 * longest + 0.6 * len(predicted),
        1.5 + 0.075 * min(max(map(len, predicted)), 12) + 0.42 * len(labels),
        "none",
    )
    with panel as axes:
        value_cells(axes, shares, low=0.0, high=1.0, written=counts, text=lambda n: f"{n:,.0f}")
        axes.set_xticks(range(1, len(predicted) + 1), predicted, rotation=40, ha="right")
        axes.set_yticks(range(1, len(labels) + 1), labels)
        axes.invert_yaxis()
        axes.tick_params(length=0, labelcolor=INK)
        axes.set(xlabel="predicted", ylabel=down)
        for edge in ("left", "bottom"):
            axes.spines[edge].set_visible(False)
    return panel.svg
