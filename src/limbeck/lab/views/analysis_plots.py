"""The drawings of analyses: from the results of each part to panels. Part of `limbeck.lab.views`.

Each takes a mapping from the subject (`student`, `teacher`, a run's name) to numbers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from limbeck.evaluation.similarity_matrix import LayerSimilarity
from limbeck.lab.measures.attended_tokens import AttentionMaps, LayerAttention, Map
from limbeck.lab.measures.layer_probing import ACCURACY, ProbedLayers, StatePoints
from limbeck.lab.measures.loss_surface import LossSurface, NoiseTolerance
from limbeck.lab.measures.row_agreement import ReliabilityCurve, RowAgreement
from limbeck.records.facts import ReliabilityPoint
from limbeck.report import plots
from limbeck.report.svg import INK, MUTED, Panel, series_colour


def similarity_panels(found: Mapping[str, LayerSimilarity]) -> list[Panel]:
    """CKA and, where widths agree, cosine."""
    panels = []
    for name, one in found.items():
        layers = {"student_layers": one.student_layers, "teacher_layers": one.teacher_layers}
        panels.append(plots.layer_map(f"{name}: CKA", np.array(one.cka), "CKA", **layers))
        if one.cosine is not None:
            panels.append(
                plots.layer_map(f"{name}: cosine", np.array(one.cosine), "cosine", **layers)
            )
    return panels


def attention_panels(found: Mapping[str, LayerAttention]) -> list[Panel]:
    """Mean weights of each term, and the weights of its first student layer by example."""
    panels = []
    for name, one in found.items():
        panels.append(
            plots.layer_map(
                f"{name}: mean weights",
                np.array(one.mean),
                "attention weight",
                student_layers=one.student_layers,
                teacher_layers=one.teacher_layers,
            )
        )
        for place, layer in enumerate(one.student_layers):
            panels.append(_by_example(f"{name}: student layer {layer}", one, place))
    return panels


def _by_example(title: str, one: LayerAttention, place: int) -> Panel:
    weights = np.array(one.examples)[:, place]
    rows, columns = weights.shape
    strongest = ", ".join(str(one.teacher_layers[k]) for k in weights.argmax(axis=1))
    panel = Panel(
        title,
        f"{title}. Weights of teacher layers by example; the strongest: {strongest}.",
        min(8.5, max(4.2, 0.9 + 0.34 * columns)),
        max(1.7, 1.0 + 0.3 * rows),
        "none",
    )
    with panel as axes:
        plots.value_cells(axes, weights, low=0.0, high=1.0)
        axes.set_xticks(range(1, columns + 1), [*map(str, one.teacher_layers)])
        axes.set_yticks(range(1, rows + 1), [*map(str, one.rows)])
        axes.invert_yaxis()
        axes.tick_params(length=0)
        for edge in ("left", "bottom"):
            axes.spines[edge].set_visible(False)
        axes.set(xlabel="teacher layer", ylabel="example (row)")
    return panel


def probing_panels(found: Mapping[str, ProbedLayers]) -> list[Panel]:
    """Scores by layer, all models in one."""
    series = [
        plots.Series(name, style, tuple(map(float, one.layers)), one.scores, one.scores, one.scores)
        for style, (name, one) in enumerate(found.items())
    ]
    first = next(iter(found.values()))
    panel = plots.line_panel(
        "Linear probes, scored on the rows they were fitted on"
        if first.fitted
        else "Linear probes",
        series,
        x_label="layer (0: embedding output)",
        y_label=first.measure if first.measure == ACCURACY else f"100 × {first.measure}",
        reference=(
            "most frequent class" if first.measure == ACCURACY else "a constant",
            first.baseline,
        ),
        least_span=plots.SCORE_SPAN,
        legend=len(series) > 1,
    )
    return [panel]


def noise_panels(found: Mapping[str, NoiseTolerance]) -> list[Panel]:
    """Score and loss by the noise's standard deviation, all models in one; bands over its draws."""
    first = next(iter(found.values()))
    return [
        plots.line_panel(
            title,
            [_by_noise(name, style, one, which) for style, (name, one) in enumerate(found.items())],
            x_label="standard deviation of the noise",
            y_label=label,
            least_span=span,
            scale="linear",
            legend=len(found) > 1,
        )
        for title, label, which, span in (
            ("Score under noise", first.metric, "scores", plots.SCORE_SPAN),
            ("Loss under noise", "loss of the labels", "losses", 0.0),
        )
    ]


def _by_noise(name: str, style: int, one: NoiseTolerance, which: str) -> plots.Series:
    values = [getattr(point, which) for point in one.points]
    return plots.Series(
        name,
        style,
        tuple(point.deviation for point in one.points),
        tuple(float(np.mean(each)) for each in values),
        tuple(map(min, values)),
        tuple(map(max, values)),
    )


def calibration_panels(found: Mapping[str, ReliabilityCurve]) -> list[Panel]:
    """Accuracy by confidence, one a model."""
    return [
        plots.reliability_panel(
            f"{name}: reliability",
            [ReliabilityPoint(**asdict(point)) for point in one.points],
            one.error / 100,
        )
        for name, one in found.items()
    ]


def agreement_panels(found: Mapping[str, RowAgreement]) -> list[Panel]:
    """Rows by who is right, one a student."""
    panels = []
    for name, one in found.items():
        counts = np.array([cell.count for cell in one.cells], dtype=float).reshape(2, 2)
        said = "; ".join(
            f"teacher {_right(cell.teacher_right)}, student {_right(cell.student_right)}: {cell.count}"
            for cell in one.cells
        )
        panel = Panel(f"{name} and teacher", f"{name}. {said}.", 3.1, 2.2, "none")
        with panel as axes:
            plots.value_cells(
                axes,
                counts / one.rows,
                low=0.0,
                high=1.0,
                written=counts,
                text=lambda count: f"{count:,.0f}",
            )
            axes.set_xticks([1, 2], ["right", "wrong"])
            axes.set_yticks([1, 2], ["right", "wrong"])
            axes.invert_yaxis()
            axes.tick_params(length=0, labelcolor=INK)
            for edge in ("left", "bottom"):
                axes.spines[edge].set_visible(False)
            axes.set(xlabel=name, ylabel="teacher")
        panels.append(panel)
    return panels


def _right(given: bool) -> str:
    return "right" if given else "wrong"


# The drawings of analyses that are planes: attention maps, loss surfaces, points.


# More tokens than this cannot be read at the edge of a map.
_MOST_TOKENS = 40


def map_panels(found: Mapping[str, AttentionMaps]) -> list[Panel]:
    """The student's map next to the teacher's, one drawing per pair of layers."""
    panels = []
    for name, one in found.items():
        sides = one.student_tokens[:_MOST_TOKENS], one.teacher_tokens[:_MOST_TOKENS]
        side = min(5.2, max(2.4, 0.13 * max(map(len, sides)) + 0.9))
        for pair in one.pairs:
            said = "" if pair.divergence is None else f", KL {pair.divergence:.3g}"
            title = f"{name}, layer {pair.student_layer}"
            panel = Panel(
                title,
                f"Attention of the student's layer {pair.student_layer} next to the teacher's layer "
                f"{pair.teacher_layer}{said}.",
                2 * side + 0.9,
                side + 0.3,
                "none",
                beside=2,
            )
            highest = max(_highest(pair.student), _highest(pair.teacher))
            with panel:
                _map(panel.axes[0], pair.student, sides[0], highest)
                _map(panel.axes[1], pair.teacher, sides[1], highest)
                panel.axes[1].set_title(f"teacher, layer {pair.teacher_layer}")
                panel.axes[0].set(xlabel="attended token", ylabel="attending token")
                panel.axes[1].set(xlabel=f"attended token{said}")
            panels.append(panel)
    return panels


def _highest(one: Map) -> float:
    return max(max(row[:_MOST_TOKENS]) for row in one[:_MOST_TOKENS])


def _map(axes: Axes, one: Map, tokens: Sequence[str], highest: float) -> None:
    count = len(tokens)
    shown = np.array(one)[:count, :count]
    axes.imshow(
        shown,
        cmap="cividis",
        # Most of a map is far below its highest value.
        norm=PowerNorm(0.5, vmin=0.0, vmax=highest),
        interpolation="nearest",
        aspect="equal",
    )
    places = [*range(count)]
    axes.set_xticks(places, [_plain(token) for token in tokens], rotation=90, fontsize=8)
    axes.set_yticks(places, [_plain(token) for token in tokens], fontsize=8)
    axes.tick_params(length=0, labelcolor=INK)
    for edge in ("left", "bottom"):
        axes.spines[edge].set_visible(False)


def _plain(token: str) -> str:
    """A token in signs that every font has, and without matplotlib's sign for formulas."""
    return token.replace("Ġ", "_").replace("▁", "_").replace("$", r"\$")[:14]


def surface_panels(found: Mapping[str, LossSurface]) -> list[Panel]:
    """Losses by step along both directions, with lines of equal loss; one a model."""
    panels = []
    for name, one in found.items():
        losses = np.array(one.losses)
        said = f"{name}. Loss {one.own:.3g} at the model itself, "
        if one.corners:
            said += ", ".join(f"{c.loss:.3g} at {c.name}" for c in one.corners[1:]) + ", "
        said += f"up to {losses.max():.3g} at a step of {one.steps[-1]:g}."
        title = f"{name}: loss {'towards two others' if one.corners else 'around it'}"
        panel = Panel(title, said, 4.2, 3.4, "none")
        with panel as axes:
            mesh = axes.pcolormesh(one.steps, one.steps, losses, cmap="cividis", shading="nearest")
            if np.ptp(losses) > 0:
                lines = axes.contour(
                    one.steps, one.steps, losses, levels=8, colors="white", linewidths=0.8
                )
                axes.clabel(lines, fontsize=8, fmt=f"%.{_digits(losses)}f")
            for place, (x, y) in enumerate([c.at for c in one.corners] or [(0.0, 0.0)]):
                axes.plot(
                    [x],
                    [y],
                    marker="Pos"[place],
                    color=series_colour(1),
                    markersize=7,
                    linestyle="none",
                )
            panel.figure.colorbar(mesh, ax=axes, label="loss of the labels", use_gridspec=False)
            if one.corners:
                (_, first, second) = one.corners
                axes.set(xlabel=f"towards {first.name}", ylabel=f"towards {second.name}")
            else:
                axes.set(xlabel="step along the first direction", ylabel="along the second")
        panels.append(panel)
    return panels


def _digits(losses: np.ndarray) -> int:
    """The smallest number of decimals that distinguishes the levels of loss."""
    return max(0, 2 - math.floor(math.log10(np.ptp(losses))))


def point_panels(found: Mapping[str, StatePoints]) -> list[Panel]:
    """Both models' states in the plane, and how near they are row by row."""
    panels = []
    for name, one in found.items():
        layers = f"student layer {one.student_layer}, teacher layer {one.teacher_layer}"
        panel = Panel(
            f"{name}: {layers}",
            f"{name}. Principal components of {len(one.student)} rows, {layers}; "
            + ("one plane." if one.together else "a plane for each model."),
            5.2 if one.together else 9.2,
            3.4,
            beside=1 if one.together else 2,
        )
        with panel:
            for place, (side, points) in enumerate(
                (("teacher", one.teacher), ("student", one.student))
            ):
                axes = panel.axes[0 if one.together else place]
                _points(axes, side, points, one, style=place)
                share = one.explained[1 - place]
                axes.set(
                    xlabel=f"first component ({100 * share[0]:.0f} % of variance)",
                    ylabel=f"second ({100 * share[1]:.0f} %)",
                )
            for axes in panel.axes:  # many classes would cover the points
                axes.legend(loc=(1.01, 0), fontsize=8, frameon=False, labelcolor=INK)
        panels.append(panel)
        if one.cosines is not None:
            panels.append(_cosines(name, one.cosines))
    return panels


def _points(axes: Axes, side: str, points: Sequence[Any], one: StatePoints, *, style: int) -> None:
    """The model by colour, classes by the marker's shape."""
    plane = np.array(points)
    labels = np.zeros(len(plane), dtype=int) if one.labels is None else np.array(one.labels)
    for number in np.unique(labels):
        called = f"{side}, {one.names[number]}" if one.names else side
        chosen = plane[labels == number]
        axes.plot(
            chosen[:, 0],
            chosen[:, 1],
            linestyle="none",
            marker="osD^vPX*"[number % 8],
            markersize=4,
            alpha=0.6,
            color=series_colour(style),
            markeredgewidth=0,
            label=called,
        )


def _cosines(name: str, cosines: Sequence[float]) -> Panel:
    mean = float(np.mean(cosines))
    panel = Panel(
        f"{name}: cosine by row",
        f"{name}. Cosines of both states from {min(cosines):.2f} to {max(cosines):.2f}, mean {mean:.2f}.",
        4.2,
        2.6,
        "y",
    )
    with panel as axes:
        # Equal values have no range to be cut into.
        low, high = min(cosines), max(cosines)
        room = max(0.0, 0.01 - (high - low)) / 2
        axes.hist(cosines, bins=20, range=(low - room, high + room), color=series_colour(0))
        axes.axvline(mean, color=MUTED, linestyle=(0, (4, 3)), linewidth=1.2)
        axes.annotate(
            f"mean {mean:.2f}", (mean, 1), (-3, -9), ("data", "axes fraction"), "offset points",
            ha="right", color=MUTED, fontsize=8,
        )  # fmt: skip
        axes.set(xlabel="cosine of student and teacher state", ylabel="rows")
    return panel
