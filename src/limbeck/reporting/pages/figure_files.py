"""A drawing as files of its own: SVG and PNG, with colours in place of the page's variables.

Part of `limbeck.reporting.pages`.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from limbeck.reporting.pages.svg import INK, MUTED, PAPER, RULE, STYLE, Panel, series_colour
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
