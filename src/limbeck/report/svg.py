"""Plots as inline SVG that follows the page: its fonts, its colours, light or dark.

Part of `limbeck.report`. Matplotlib draws with marker colours that represent the page's variables;
they are exchanged in the finished text, so that one drawing serves both themes.
"""

import hashlib
import io
import re
import warnings
from html import escape
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

# No drawing uses these near-blacks for themselves.
INK, MUTED, RULE, PAPER = "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04"
COLOURS = 7
VARIABLES = {INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper"}
VARIABLES |= {f"#0a1b{index:02x}": f"series-{index}" for index in range(COLOURS)}
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


def series_dash(index: int) -> str | tuple[Any, ...]:
    """A dash pattern; repeats only after all colours have been used with it."""
    return DASHES[(index // COLOURS) % len(DASHES)]


class Panel:
    """One small drawing: `with Panel(title, alt) as axes: …`, then `.svg`.

    `alt` describes the image; screen readers read it instead. With `beside` there are this number of
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
        # Names of classes and texts may contain any character; a browser has fonts for the ones that matplotlib lacks.
        warnings.filterwarnings("ignore", r"Glyph .* missing from font")
        # A figure that keeps its layout engine is drawn a second time, only for the layout.
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
    for colour, name in VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    # Its style sheet would apply to the entire page, which has the same rule for drawings only.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, count=1, flags=re.DOTALL)
    # Text belongs to the page's font (matplotlib 3.10 wrote the short form).
    text = re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", text)
    return re.sub(r"font: ([^;\"]*?px) [^;\"]*", r"font: \1 var(--font)", text)


_CSS = Path(__file__).parent.joinpath("templates", "report.css").read_text(encoding="utf-8")
# The page's light colours, for a file, which has no theme to follow.
LIGHT = dict(re.findall(r"--([\w-]+): (#\w{6})", _CSS.partition("@media")[0]))


def standalone(svg: str) -> bytes:
    """A page's drawing as a separate file, on white, with colours instead of the page's variables."""
    white = r'width="\1" style="background: var(--paper)"'
    svg = re.sub(r'style="width: (\d+)px[^"]*"', white, svg, count=1)
    known = {**LIGHT, "font": "sans-serif"}
    return re.sub(r"var\(--([\w-]+)\)", lambda found: known[found[1]], svg).encode()
