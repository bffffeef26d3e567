"""Matrices as coloured cells with their values: layer by layer, class by class, teacher by teacher.

Part of `limbeck.report`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes

from limbeck.report.svg import MUTED, PAPER, Panel


def heat_map(title: str, matrix: np.ndarray, measure: str = "similarity") -> str:
    """`layer_map`, as it stands in a page."""
    return layer_map(title, matrix, measure).svg


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
        axes.tick_params(length=0)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.set(xlabel="teacher layer", ylabel="student layer")
    return panel


def short(value: float) -> str:
    """Two decimals without the nought before the point; a dash for what is not finite."""
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

    Rows and columns are at 1, 2, …; what is not finite is left without colour.
    """
    rows, columns = matrix.shape
    axes.pcolormesh(
        np.arange(columns + 1) + 0.5,
        np.arange(rows + 1) + 0.5,
        np.ma.masked_invalid(matrix),
        cmap="cividis",
        vmin=low,
        vmax=high,
        edgecolor=PAPER,
        linewidth=0.8,
    )
    for row, column in np.ndindex(rows, columns):
        value = float(matrix[row, column])
        light = value > low + 0.55 * (high - low)
        axes.text(
            column + 1,
            row + 1,
            text(value if written is None else float(written[row, column])),
            ha="center",
            va="center",
            fontsize=8,
            color=MUTED if not np.isfinite(value) else "#111111" if light else "#ffffff",
        )
