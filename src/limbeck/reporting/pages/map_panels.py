"""Maps of numbers with each value written in. Part of `limbeck.reporting.pages`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from limbeck.reporting.pages.cell_maps import value_cells
from limbeck.reporting.pages.svg import INK, Panel


def map_panel(
    title: str,
    alt: str,
    names: tuple[Sequence[str], Sequence[str]],
    values: np.ndarray,
    *,
    span: tuple[float, float],
    text: str,
    labels: tuple[str, str],
) -> Panel:
    """A cell for each value, `values` [rows, columns]; what is not finite is a dash.

    Args:
        title: what the drawing is called.
        alt: the same in words.
        names: of the rows, of the columns.
        values: what is written in.
        span: the values of the darkest and of the lightest colour.
        text: how a value is written: `{:.1f}`.
        labels: of the axis of rows, of that of columns.
    """
    rows, columns = names
    panel = Panel(
        title,
        alt,
        1.4 + 0.07 * max(map(len, rows)) + 0.62 * len(columns),
        1.3 + 0.36 * len(rows),
        "none",
    )
    with panel as axes:
        value_cells(
            axes,
            values,
            low=span[0],
            high=span[1],
            text=lambda value: text.format(value) if np.isfinite(value) else "–",
        )
        axes.set_xticks(range(1, len(columns) + 1), columns, rotation=30, ha="right")
        axes.set_yticks(range(1, len(rows) + 1), rows)
        axes.invert_yaxis()
        axes.tick_params(length=0, labelcolor=INK)
        for edge in ("left", "bottom"):
            axes.spines[edge].set_visible(False)
        axes.set(xlabel=labels[1], ylabel=labels[0])
    return panel
