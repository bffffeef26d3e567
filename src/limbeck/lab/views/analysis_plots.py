"""The drawings of analyses: from what was found of each part to panels. Part of `limbeck.lab.views`.

Each takes a mapping from what it was found of (`student`, `teacher`, a run's name) to numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from limbeck.evaluation.similarity_matrix import LayerSimilarity
from limbeck.lab.measures.attention_by_layer import LayerAttention
from limbeck.lab.measures.calibration_curves import ReliabilityCurve
from limbeck.lab.measures.input_noise import NoiseTolerance
from limbeck.lab.measures.layer_probing import ACCURACY, ProbedLayers
from limbeck.lab.measures.row_agreement import RowAgreement
from limbeck.records.facts import ReliabilityPoint
from limbeck.report.plots import (
    SCORE_SPAN,
    Series,
    layer_map,
    line_panel,
    reliability_panel,
    value_cells,
)
from limbeck.report.svg import INK, Panel


def similarity_panels(found: Mapping[str, LayerSimilarity]) -> list[Panel]:
    """CKA and, where widths agree, cosine."""
    panels = []
    for name, one in found.items():
        layers = {"student_layers": one.student_layers, "teacher_layers": one.teacher_layers}
        panels.append(layer_map(f"{name}: CKA", np.array(one.cka), "CKA", **layers))
        if one.cosine is not None:
            panels.append(layer_map(f"{name}: cosine", np.array(one.cosine), "cosine", **layers))
    return panels


def attention_panels(found: Mapping[str, LayerAttention]) -> list[Panel]:
    """Mean weights of each term, and those of its first student layer by example."""
    panels = []
    for name, one in found.items():
        panels.append(
            layer_map(
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
        value_cells(axes, weights, low=0.0, high=1.0)
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
        Series(name, style, tuple(map(float, one.layers)), one.scores, one.scores, one.scores)
        for style, (name, one) in enumerate(found.items())
    ]
    first = next(iter(found.values()))
    panel = line_panel(
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
        least_span=SCORE_SPAN,
        legend=len(series) > 1,
    )
    return [panel]


def noise_panels(found: Mapping[str, NoiseTolerance]) -> list[Panel]:
    """Score and loss by the noise's standard deviation, all models in one; bands over its draws."""
    first = next(iter(found.values()))
    return [
        line_panel(
            title,
            [_by_noise(name, style, one, which) for style, (name, one) in enumerate(found.items())],
            x_label="standard deviation of the noise",
            y_label=label,
            least_span=span,
            scale="linear",
            legend=len(found) > 1,
        )
        for title, label, which, span in (
            ("Score under noise", first.metric, "scores", SCORE_SPAN),
            ("Loss under noise", "loss of the labels", "losses", 0.0),
        )
    ]


def _by_noise(name: str, style: int, one: NoiseTolerance, which: str) -> Series:
    values = [getattr(point, which) for point in one.points]
    return Series(
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
        reliability_panel(
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
            value_cells(
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
