"""The drawings of a team: who differs from whom, what each adds.

Part of `limbeck.reporting.pages`, beside `plots`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from limbeck.reporting.pages.cell_maps import short, value_cells
from limbeck.reporting.pages.svg import INK, MUTED, Panel, series_colour


def pair_map(title: str, names: Sequence[str], matrix: np.ndarray, *, percent: bool) -> str:
    """A symmetric matrix (k, k) of `names`, the first at the top, each value written in.

    The diagonal, which says nothing of a pair, is left out; `percent` writes 100 times the value.
    """
    matrix = np.array(matrix, dtype=float)
    np.fill_diagonal(matrix, np.nan)
    said = "; ".join(
        f"{first} and {second} {matrix[row, column]:.3g}"
        for (row, first), (column, second) in itertools.combinations(enumerate(names), 2)
    )
    count = len(names)
    side = 0.42 * count
    longest = 0.075 * max(map(len, names))
    panel = Panel(title, f"{title}: {said}.", 0.9 + longest + side, 1.0 + side, "none")
    with panel as axes:
        low, high = float(np.nanmin(matrix)), float(np.nanmax(matrix))
        # Equal values are neither low nor high.
        room = (high - low) * 0.02 or 0.5
        value_cells(
            axes, matrix, low=low - room, high=high + room, text=_percent if percent else _plain
        )
        axes.set_xticks(range(1, count + 1))
        axes.set_yticks(
            range(1, count + 1), [f"{name}  {row}" for row, name in enumerate(names, start=1)]
        )
        axes.invert_yaxis()
        axes.tick_params(length=0, labelcolor=INK)
        for edge in ("left", "bottom"):
            axes.spines[edge].set_visible(False)
    return panel.svg


def additions(names: Sequence[str], adds: np.ndarray, *, x_label: str) -> str:
    """A bar a member, from the top: to the right what the team gains by it, to the left loses."""
    said = "; ".join(f"{name} {value:+.2f}" for name, value in zip(names, adds, strict=True))
    panel = Panel("", f"{x_label}: {said}.", 5.6, 0.8 + 0.3 * len(names), grid="x")
    with panel as axes:
        colours = [series_colour(2 if value >= 0 else 1) for value in adds]
        axes.barh(range(len(names)), adds, height=0.6, color=colours)
        axes.axvline(0, color=MUTED, linewidth=1)
        for row, value in enumerate(adds):
            axes.annotate(
                f"{value:+.2f}".replace("-", "−"),
                (value, row),
                xytext=(4 if value >= 0 else -4, 0),
                textcoords="offset points",
                ha="left" if value >= 0 else "right",
                va="center",
                color=INK,
                fontsize=8,
            )
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.spines["left"].set_visible(False)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.margins(x=0.18)
        axes.set_xlabel(x_label)
    return panel.svg


def _percent(value: float) -> str:
    return f"{100 * value:.1f}" if np.isfinite(value) else ""


def _plain(value: float) -> str:
    return short(value) if np.isfinite(value) else ""
