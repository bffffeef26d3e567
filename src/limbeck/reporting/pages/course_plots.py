"""The drawings of how runs went. Part of `limbeck.reporting.pages`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from limbeck.reporting.analysis.run_course import RunCourse
from limbeck.reporting.pages.plots import SCORE_SPAN, Series, line_panel
from limbeck.reporting.pages.svg import Panel, series_colour


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
