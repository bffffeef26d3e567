"""The drawings of a classifier: how sure it is and how right, and what it takes for what.

Part of `limbeck.reporting.pages`, beside `plots`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from limbeck.evaluation.calibration import Bin
from limbeck.reporting.pages.cell_maps import value_cells
from limbeck.reporting.pages.svg import INK, MUTED, Panel, series_colour


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
    title: str, labels: Sequence[str], predicted: Sequence[str], counts: np.ndarray
) -> str:
    """Counts (label, prediction), the first label at the top; coloured by the share of the label's rows."""
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
        f"{title}. Rows by label and prediction: {said}.",
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
        axes.set(xlabel="predicted", ylabel="label")
        for edge in ("left", "bottom"):
            axes.spines[edge].set_visible(False)
    return panel.svg
