"""Plots as inline SVG that follows the page: its fonts, its colours, light or dark.

Part of `limbeck.report`. Matplotlib draws with marker colours that stand for the page's variables;
they are exchanged in the finished text, so that one drawing serves both themes.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from html import escape
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.collections import Collection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from limbeck.support.files import file_name, write_whole

# No drawing uses these near-blacks for themselves.
INK, MUTED, RULE, PAPER = "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04"
_VARIABLES = {INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper"}
COLOURS = 7
Grid = Literal["both", "x", "y", "none"]
MARKERS = "osD^vPX*"
DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)))

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "limbeck",
    "font.size": 10,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlecolor": INK,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
}


def series_colour(index: int) -> str:
    """The marker colour of the index-th series; the page's palette has `COLOURS` of them."""
    return f"#0a1b{index % COLOURS:02x}"


def series_marker(index: int) -> str:
    """A marker shape, so that series differ in more than colour."""
    return MARKERS[index % len(MARKERS)]


def series_dash(index: int) -> str | tuple:
    """A dash pattern; repeats only after all colours have been used with it."""
    return DASHES[(index // COLOURS) % len(DASHES)]


class Panel:
    """One small drawing: `with Panel(title, alt) as axes: …`, then `.svg`.

    `alt` says in words what the image shows; screen readers read it in its place. With `beside` there are as many
    axes side by side, `.axes`, of which the first has the title. `.figure` is matplotlib's, for files.
    """

    def __init__(
        self,
        title: str,
        alt: str,
        width: float = 4.2,
        height: float = 2.9,
        grid: Grid = "both",
        beside: int = 1,
    ) -> None:
        self.title, self.alt, self.grid = title, alt, grid
        self.size, self.beside = (width, height), beside
        self.svg = ""

    def __enter__(self) -> Axes:
        self._context = mpl.rc_context(STYLE)
        self._context.__enter__()
        self.figure = Figure(figsize=self.size)
        self.axes = [
            self.figure.add_subplot(1, self.beside, place) for place in range(1, self.beside + 1)
        ]
        self.axes[0].set_title(self.title)
        for axes in self.axes:
            axes.grid(visible=False)
            if self.grid != "none":
                axes.grid(visible=True, axis=self.grid)
        return self.axes[0]

    def __exit__(self, kind: object, value: object, trace: object) -> None:
        try:
            if kind is None:
                self.svg = _inline(self.figure, self.alt)
        finally:
            self._context.__exit__(None, None, None)


def _inline(figure: Figure, alt: str) -> str:
    FigureCanvasSVG(figure)  # so that texts are as wide to the layout as they are drawn
    stream = io.StringIO()
    with warnings.catch_warnings():
        # Names of classes and texts may hold any sign; a browser has fonts for those that matplotlib has none for.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font")
        # A figure that keeps its layout engine is drawn once more in vain, to lay it out.
        ConstrainedLayoutEngine().execute(figure)
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # The view box keeps the shape. Every drawing has one scale, so that text has one size all over a page: 13 px, and
    # no less than 10.5 px where a phone is too narrow.
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    width = 72 * figure.get_figwidth()
    scale = f'style="width: {1.3 * width:.0f}px; min-width: {1.05 * width:.0f}px"'
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', rf"\1 {scale}", text, count=1)
    text = text.replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)
    # Ids are the document's: several drawings in one page must not share them.
    prefix = f"p{hashlib.sha256(text.encode()).hexdigest()[:10]}-"
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'(url\(#|href="#)', rf"\1{prefix}", text)
    text = re.sub(r"#0a1b0([0-6])", r"var(--series-\1)", text)
    for colour, name in _VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    # Its style sheet would reach out to the whole page, which has the same rule for drawings only.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    # Text belongs to the page's font (matplotlib 3.10 wrote the short form).
    text = re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", text)
    return re.sub(r"font: ([^;\"]*?px) [^;\"]*", r"font: \1 var(--font)", text)


# A drawing as files of its own: SVG and PNG, with colours in place of the page's variables.


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
