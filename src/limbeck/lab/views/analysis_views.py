"""The view of each analysis: a heading, how to read it, its drawings and tables.

Part of `limbeck.lab.views`.
"""

import io
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from pydantic import TypeAdapter, ValidationError

from limbeck.evaluation.similarity_matrix import LayerSimilarity
from limbeck.lab.measures.attended_tokens import AttentionMaps, LayerAttention
from limbeck.lab.measures.layer_probing import ProbedLayers, StatePoints
from limbeck.lab.measures.loss_surface import LossSurface, NoiseTolerance
from limbeck.lab.measures.row_agreement import ReliabilityCurve, RowAgreement, RunCourse
from limbeck.lab.views import analysis_plots as draw
from limbeck.lab.views import analysis_plots as plane
from limbeck.records.facts import finite
from limbeck.report.plots import SCORE_SPAN, Series, line_panel, value_cells
from limbeck.report.sections import PAGE_PARTS, PagePart, Section
from limbeck.report.svg import INK, LIGHT, STYLE, VARIABLES, Panel, series_colour
from limbeck.support import files, plain
from limbeck.support.cells import CellTable
from limbeck.support.errors import LimbeckError
from limbeck.support.registry import Registry

_DOTS_PER_INCH = 160
_PARTS = ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor")
_COLOURS = {to_rgb(marker): to_rgb(LIGHT[name]) for marker, name in VARIABLES.items()}


def write_figure(panel: Panel, folder: Path, name: str) -> list[Path]:
    """Write `NAME.svg` and `NAME.png`, each atomically, and return their paths."""
    name = files.file_name(name)
    found = []
    for form, content in figure_files(panel).items():
        found.append(folder / f"{name}.{form}")
        files.write_whole(found[-1], content)
    return found


def figure_files(panel: Panel) -> dict[str, bytes]:
    """The drawing as `svg` and as `png`, on white; both describe their content in their metadata."""
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
    """Replace the page's color variables by colors, in everything that is drawn."""
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
    """A cell for each value, `values` [rows, columns]; non-finite values are a dash.

    Args:
        title: the drawing's title.
        alt: the same in words.
        names: of the rows, of the columns.
        values: the written values.
        span: the values of the darkest and of the lightest colour.
        text: how a value is written: `{:.1f}`.
        labels: of the two axes, rows and columns.
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
            # Runs at the same point are drawn side by side.
            f"L{layer}", (step, score), (0, 6 if style % 2 == 0 else -13), textcoords="offset points", ha="center",
            fontsize=8, color=series_colour(style),
        )  # fmt: skip


Tables = Callable[[Mapping[str, Any]], list[CellTable]]


def no_tables(found: Mapping[str, Any]) -> list[CellTable]:
    """No tables: the drawings contain everything."""
    return []


@dataclass(frozen=True)
class AnalysisView:
    """How an analysis is shown.

    Attributes:
        numbers: the class of its result for each part.
        title: its heading.
        lead: how its drawings are read.
        panels: from the results of each part to drawings.
        tables: from the results of each part to tables.
        wide: whether a drawing takes the page's width.
    """

    numbers: type
    title: str
    lead: str
    panels: Callable[[Mapping[str, Any]], list[Panel]]
    tables: Tables = field(default=no_tables)
    wide: bool = False


VIEWS: Registry[AnalysisView] = Registry("analysis")
"""By the name that `limbeck analyze` has for each."""


def analysis_sections(analyses: Mapping[str, Mapping[str, Any]]) -> list[Section]:
    """A section for each analysis, by its name and its results for each part."""
    found = []
    for name, parts in analyses.items():
        view = VIEWS.get(name)
        found.append(
            Section(
                f"analysis-{name}",
                view.title,
                view.lead,
                view.panels(parts),
                layout="wide" if view.wide else "",
                tables=view.tables(parts),
            )
        )
    return found


def _agreement_tables(found: Mapping[str, RowAgreement]) -> list[CellTable]:
    tables = []
    for name, one in found.items():
        texts = any(example.text for cell in one.cells for example in cell.examples)
        head = ["teacher", name, "row", "label", "teacher predicts", "student predicts"]
        cells = [[*head, "text"] if texts else head]
        for cell in one.cells:
            for example in cell.examples:
                row = [
                    "right" if cell.teacher_right else "wrong",
                    "right" if cell.student_right else "wrong",
                    str(example.row),
                    example.label,
                    _shares(one.names, example.teacher, example.teacher_probabilities),
                    _shares(one.names, example.student, example.student_probabilities),
                ]
                said = " / ".join((example.text or {}).values())
                cells.append([*row, said[:160]] if texts else row)
        tables.append(CellTable("Examples", cells, tuple({*range(len(cells[0]))} - {2})))
    return tables


def _shares(names: tuple[str, ...], given: str, probabilities: tuple[float, ...] | None) -> str:
    if probabilities is None:
        return given
    shares = ", ".join(
        f"{name} {100 * p:.1f} %" for name, p in zip(names, probabilities, strict=True)
    )
    return f"{given} ({shares})"


for _name, _view in {
    "similarity": AnalysisView(
        LayerSimilarity,
        "Layer similarity",
        "How alike each student layer (rows) and each teacher layer (columns) represent the same examples: linear "
        "centred kernel alignment and, where both are as wide, the mean cosine. The nearer to 1, the more alike.",
        draw.similarity_panels,
    ),
    "layer-attention": AnalysisView(
        LayerAttention,
        "Attention over teacher layers",
        "Weight of each teacher layer in the target of a student layer: the mean over examples, then "
        "examples one by one. Each row adds up to 1.",
        draw.attention_panels,
    ),
    "probing": AnalysisView(
        ProbedLayers,
        "Linear probes",
        "Accuracy of a logistic regression (of numbers the rank correlation of a ridge regression) on each layer's "
        "frozen states, fitted on training rows and scored on others; of the split train on the same rows.",
        draw.probing_panels,
    ),
    "noise": AnalysisView(
        NoiseTolerance,
        "Noise on embeddings",
        "The score and the loss while Gaussian noise is added to the input embeddings; bands reach from the lowest "
        "to the highest draw.",
        draw.noise_panels,
    ),
    "agreement": AnalysisView(
        RowAgreement,
        "Who is right where",
        "Rows by whether teacher (rows) and student (columns) have them right, colored by their share; and of each "
        "cell the rows whose probabilities differ most.",
        draw.agreement_panels,
        _agreement_tables,
    ),
    "calibration": AnalysisView(
        ReliabilityCurve,
        "How sure each is",
        "Bars: the share of right predictions among those made with a confidence in that range; the fuller the "
        "range, the darker. Marks: the mean confidence. Dashed is what would be exact.",
        draw.calibration_panels,
    ),
    "attention-maps": AnalysisView(
        AttentionMaps,
        "Attention maps",
        "Attention of each token of one example, the student on the left and the teacher on the right, both on one "
        "color scale, which follows the square root. KL: the divergence of the teacher's maps from the student's, "
        "mean over heads and tokens.",
        plane.map_panels,
        wide=True,
    ),
    "loss-surface": AnalysisView(
        LossSurface,
        "Loss surface",
        "The loss of the labels with all weights moved: along two random directions, each filter as long as the "
        "model's own, or in the plane through three students. The cross is the model, circle and square are the "
        "others. Wide, flat minima are thought to generalize.",
        plane.surface_panels,
    ),
    "pca": AnalysisView(
        StatePoints,
        "States in the plane",
        "The first two principal components of both models' states of the same rows, and how near the two are, row by "
        "row.",
        plane.point_panels,
    ),
    "convergence": AnalysisView(
        RunCourse,
        "Convergence",
        "Dev score and training terms by step. L1, L2, …: that layer's turn ended here.",
        course_panels,
    ),
}.items():
    VIEWS.register(_name)(_view)


# Results of analyses, stored in a run's folder and read again for its page.


log = logging.getLogger(__name__)

ANALYSES_FOLDER = "analysis"
"""The folder of analyses in a run's folder."""


def write_numbers(
    path: Path, name: str, settings: Mapping[str, Any], parts: Mapping[str, Any]
) -> None:
    """Write an analysis's results as JSON, atomically."""
    adapter = _adapter(name)
    plain = {part: finite(adapter.dump_python(one)) for part, one in parts.items()}
    content = {"analysis": name, "settings": dict(settings), "parts": plain}
    files.write_whole(
        path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    )


def read_numbers(path: Path) -> dict[str, Any]:
    """An analysis's results for each part, from the file that `write_numbers` wrote.

    Raises:
        LimbeckError: it is no such file.
    """
    content = plain.read_json(plain.read_text(path), str(path))
    try:
        adapter = _adapter(content["analysis"])
        return {part: adapter.validate_python(one) for part, one in content["parts"].items()}
    except (TypeError, KeyError, AttributeError, ValidationError) as error:
        raise LimbeckError(
            f"{path} holds no analysis ({type(error).__name__})", "analyze the run again"
        ) from None


def read_asked(path: Path, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """As `read_numbers`, if they were made with these settings; None if they were not, or do not exist."""
    if not path.is_file():
        return None
    try:
        content = plain.read_json(plain.read_text(path), str(path))
        same = isinstance(content, dict) and content.get("settings") == dict(settings)
        return read_numbers(path) if same else None
    except LimbeckError:
        return None


def _adapter(name: str) -> TypeAdapter[Any]:
    numbers: Any = VIEWS.get(name).numbers
    return TypeAdapter(numbers)


def stored_analyses(run: Path) -> dict[str, dict[str, Any]]:
    """By name the results stored in a run's folder; unreadable ones are reported and left out."""
    found = {}
    for name in VIEWS:
        path = run / ANALYSES_FOLDER / f"{name}.json"
        if path.is_file():
            try:
                found[name] = read_numbers(path)
            except LimbeckError as error:
                log.warning("%s", error)
    return found


def _sections(run: Path) -> list[Section]:
    return analysis_sections(stored_analyses(run))


PAGE_PARTS.register("analyses")(
    PagePart(tuple(f"{ANALYSES_FOLDER}/*.{kind}" for kind in ("json", "svg", "png")), _sections)
)
