"""Drawings of studies and analyses as files of their own: SVG and PNG, with colours in place of a page's variables."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from limbeck.lab.measures.row_agreement import RunCourse
from limbeck.report.plots import SCORE_SPAN, Series, line_panel, value_cells
from limbeck.report.svg import INK, MUTED, PAPER, RULE, STYLE, Panel, series_colour
from limbeck.support.files import file_name, write_whole

_DOTS_PER_INCH = 160
_PARTS = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")
# The page's light colours: a file has no theme to follow.
_SERIES = ("#0072b2", "#d55e00", "#009e73", "#b5589a", "#c98a00", "#3a9bd1", "#6b7280")
_COLOURS = {
    to_rgb(marker): to_rgb(colour)
    for marker, colour in (
        *((series_colour(number), colour) for number, colour in enumerate(_SERIES)),
        (INK, "#1b1f24"),
        (MUTED, "#5b6470"),
        (RULE, "#e3e6ea"),
        (PAPER, "#ffffff"),
    )
}


def write_figure(panel: Panel, folder: Path, name: str) -> list[Path]:
    """Write `NAME.svg` and `NAME.png`, each whole or not at all, and return their paths."""
    name = file_name(name)
    found = []
    for form, content in figure_files(panel).items():
        found.append(folder / f"{name}.{form}")
        write_whole(found[-1], content)
    return found


def figure_files(panel: Panel) -> dict[str, bytes]:
    """The drawing as `svg` and as `png`, on white; both say in their metadata what they show."""
    figure = panel.figure
    with mpl.rc_context(STYLE):
        _give_colours(figure)
        FigureCanvasAgg(figure)
        said: dict[str, dict[str, Any]] = {
            "svg": {"Title": panel.title, "Description": panel.alt, "Date": None},
            "png": {"Title": panel.title, "Description": panel.alt, "Software": None},
        }
        found = {}
        for form, metadata in said.items():
            stream = io.BytesIO()
            figure.savefig(
                stream,
                format=form,
                dpi=_DOTS_PER_INCH,
                facecolor="white",
                # Texts are not as wide in every form as they were where the layout was made.
                bbox_inches="tight",
                pad_inches=0.08,
                metadata=metadata,
            )
            found[form] = stream.getvalue()
    return found


def _give_colours(figure: Figure) -> None:
    """Put colours in the place of what stands for the page's variables, in everything that is drawn."""
    for artist in figure.findobj():
        for part in _PARTS:
            given = getattr(artist, f"get_{part}", None)
            mesh = isinstance(artist, Collection) and artist.get_array() is not None
            if given is None or (mesh and part != "edgecolor"):
                continue  # A mesh takes its faces from its values.
            colours = given()
            if isinstance(colours, str) and colours in ("none", "auto"):
                continue
            many = np.atleast_2d(mpl.colors.to_rgba_array(colours))
            known = [_COLOURS.get((float(r), float(g), float(b))) for r, g, b, _ in many]
            # Others stay: setting a colour again would take its artist's transparency.
            if any(known):
                found = [
                    (*new, old[3]) if new else tuple(old)
                    for new, old in zip(known, many, strict=True)
                ]
                getattr(artist, f"set_{part}")(
                    found if isinstance(artist, Collection) else found[0]
                )


# Maps of numbers with each value written in, and how runs went.


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


def course_panels(found: Mapping[str, RunCourse]) -> list[Panel]:
    """Dev score by step, with the layers whose turn was over; then every term."""
    panels = []
    scores = [
        _series(name, style, one, one.scores) for style, (name, one) in enumerate(found.items())
    ]
    if known := [one for one in scores if one is not None]:
        first = next(iter(found.values()))
        panel = line_panel(
            "Convergence",
            known,
            x_label="step",
            y_label=first.metric,
            least_span=SCORE_SPAN,
            legend=len(known) > 1,
        )
        for style, one in enumerate(found.values()):
            _turns(panel, style, one)
        panels.append(panel)
    terms = dict.fromkeys(term for one in found.values() for term in one.terms)
    for term in sorted(terms, key=lambda term: term != "loss"):
        series = [
            _series(name, style, one, one.terms.get(term, ()))
            for style, (name, one) in enumerate(found.items())
        ]
        if shown := [one for one in series if one is not None]:
            called = "total loss" if term == "loss" else term
            panels.append(
                line_panel(called, shown, x_label="step", y_label=called, legend=len(shown) > 1)
            )
    return panels


def _series(name: str, style: int, one: RunCourse, values: Sequence[float | None]) -> Series | None:
    known = [
        (float(step), value)
        for step, value in zip(one.steps, values, strict=False)
        if value is not None
    ]
    if not known:
        return None
    x, y = zip(*known, strict=True)
    return Series(name, style, x, y, y, y)


def _turns(panel: Panel, style: int, one: RunCourse) -> None:
    """The number of each layer at the epoch with which its turn ended."""
    for step, score, layer in zip(one.steps, one.scores, one.learned, strict=True):
        if layer is None or score is None:
            continue
        panel.axes[0].annotate(
            # Runs that are at one place stand apart.
            f"L{layer}", (step, score), (0, 6 if style % 2 == 0 else -13), textcoords="offset points", ha="center",
            fontsize=8, color=series_colour(style),
        )  # fmt: skip
