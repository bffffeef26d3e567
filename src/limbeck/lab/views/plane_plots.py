"""The drawings of analyses that are planes: attention maps, loss surfaces, points.

Part of `limbeck.lab.views`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from limbeck.lab.measures.attended_tokens import AttentionMaps, Map
from limbeck.lab.measures.loss_surface import LossSurface
from limbeck.lab.measures.principal_components import StatePoints
from limbeck.report.svg import INK, MUTED, Panel, series_colour

# More tokens than this cannot be read at the edge of a map.
_MOST_TOKENS = 40


def map_panels(found: Mapping[str, AttentionMaps]) -> list[Panel]:
    """The student's map beside the teacher's, one drawing a pair of layers."""
    panels = []
    for name, one in found.items():
        sides = one.student_tokens[:_MOST_TOKENS], one.teacher_tokens[:_MOST_TOKENS]
        side = min(5.2, max(2.4, 0.13 * max(map(len, sides)) + 0.9))
        for pair in one.pairs:
            said = "" if pair.divergence is None else f", KL {pair.divergence:.3g}"
            title = f"{name}, layer {pair.student_layer}"
            panel = Panel(
                title,
                f"Attention of the student's layer {pair.student_layer} beside the teacher's layer "
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
    """As many decimals as tell lines of equal loss apart."""
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
            4.2 if one.together else 7.2,
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
            for axes in panel.axes:
                axes.legend(fontsize=8, frameon=False, labelcolor=INK)
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
