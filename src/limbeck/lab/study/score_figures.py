"""Figures of many runs' scores: lines, boxes, bars, maps and curves. Part of `limbeck.lab.study`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from limbeck.lab.views.analysis_views import map_panel
from limbeck.records import Record
from limbeck.records.facts import Epoch
from limbeck.report.page import curve
from limbeck.report.plots import SCORE_SPAN, Series, line_panel
from limbeck.report.svg import INK, MUTED, Panel, series_colour
from limbeck.tables.model import task_title


@dataclass(frozen=True)
class RunPoint:
    """A run as a figure places it: its row, its task and the values of the axes."""

    label: str
    task: str
    condition: Mapping[str, Any]
    record: Record
    members: Mapping[str, str] = field(default_factory=dict)
    """The folder of each of several teachers → its name in the study."""

    @property
    def score(self) -> float | None:
        """Primary dev score, 0 to 100."""
        return self.record.primary_score()


Teachers = Mapping[str, float]
"""Task → the teacher's primary dev score."""


def line_panels(
    points: Sequence[RunPoint],
    x_label: str,
    x: Callable[[RunPoint], float | None],
    teachers: Teachers,
) -> list[Panel]:
    """Scores by a number, one line per method; one drawing per task."""
    panels = []
    for task, own in by_key(points, lambda one: one.task).items():
        series = []
        for style, (label, runs) in enumerate(by_key(own, lambda one: one.label).items()):
            found: dict[float, list[float]] = {}
            for run in runs:
                place, score = x(run), run.score
                if place is not None and score is not None:
                    found.setdefault(place, []).append(score)
            if found:
                series.append(_series(label, style, found))
        if series:
            places = sorted({place for one in series for place in one.x})
            panels.append(
                line_panel(
                    task_title(task),
                    series,
                    x_label=_said(x_label),
                    y_label="primary dev score",
                    reference=_reference(task, teachers),
                    least_span=SCORE_SPAN,
                    legend=True,
                    # Where rows double from point to point a straight axis would crowd the small ones.
                    scale="log" if places[0] > 0 and places[-1] / places[0] >= 8 else "linear",
                )
            )
    return panels


def _said(key: str) -> str:
    """A recipe key as an axis calls it."""
    return {"parameters": "parameters (millions)"}.get(key, key.replace("_", " ").replace(".", " "))


def curve_panels(points: Sequence[RunPoint], y: str, teachers: Teachers) -> list[Panel]:
    """Dev score or a training term by epoch, one line per method; one drawing per task."""
    panels = []
    for task, own in by_key(points, lambda one: one.task).items():
        series = []
        for style, (label, runs) in enumerate(by_key(own, _row).items()):
            records = [run.record for run in runs]
            found = curve(
                label,
                style,
                records,
                _reading(y),
            )
            series += [] if found is None else [found]
        if series:
            score = y == _SCORE
            panels.append(
                line_panel(
                    task_title(task),
                    series,
                    x_label="epoch",
                    y_label="primary dev score" if score else _called(y),
                    reference=_reference(task, teachers) if score else None,
                    least_span=SCORE_SPAN if score else 0.0,
                    legend=True,
                )
            )
    return panels


_SCORE, _OF_DEV = "dev", "dev."


def _reading(y: str) -> Callable[[Epoch], float | None]:
    if y == _SCORE:
        return lambda epoch: epoch.dev.get("primary")
    if y.startswith(_OF_DEV):
        return lambda epoch: epoch.dev.get(y.removeprefix(_OF_DEV))
    return lambda epoch: epoch.train.get(y)


def _called(y: str) -> str:
    return "training loss" if y == "loss" else y.replace(_OF_DEV, "dev ")


def box_panels(points: Sequence[RunPoint], teachers: Teachers) -> list[Panel]:
    """A box over seeds for each method, under each condition; one a task."""

    def draw(axes: Axes, values: list[list[float]]) -> None:
        boxes = axes.boxplot(values, widths=0.55, patch_artist=True)
        for number, box in enumerate(boxes["boxes"]):
            box.set(facecolor=series_colour(number), alpha=0.55, edgecolor=INK)
        for part in ("whiskers", "caps", "medians"):
            for line in boxes[part]:
                line.set(color=INK, linewidth=1.3)
        for line in boxes["fliers"]:
            line.set(markeredgecolor=INK, markersize=3.5)

    return _columns(points, teachers, draw, "median {0:.1f} ({1:.1f} to {2:.1f})", np.median)


def score_bars(points: Sequence[RunPoint], teachers: Teachers) -> list[Panel]:
    """A bar at the mean for each method, under each condition; one a task."""

    def draw(axes: Axes, values: list[list[float]]) -> None:
        for number, own in enumerate(values, start=1):
            mean = fmean(own)
            axes.bar(number, mean, width=0.6, color=series_colour(number - 1))
            axes.plot([number, number], [min(own), max(own)], color=INK, linewidth=1.4)
        low = min(map(min, values))
        axes.set_ylim(bottom=max(0.0, low - 10))

    return _columns(points, teachers, draw, "mean {0:.1f} ({1:.1f} to {2:.1f})", np.mean)


def _columns(
    points: Sequence[RunPoint],
    teachers: Teachers,
    draw: Callable[[Axes, list[list[float]]], None],
    said: str,
    middle: Callable[[list[float]], Any],
) -> list[Panel]:
    panels = []
    for task, own in by_key(points, lambda one: one.task).items():
        groups = {
            label: scores
            for label, runs in by_key(own, _row).items()
            if (scores := [run.score for run in runs if run.score is not None])
        }
        if not groups:
            continue
        words = "; ".join(
            f"{label} {said.format(float(middle(v)), min(v), max(v))}"
            for label, v in groups.items()
        )
        longest = max(map(len, groups))
        panel = Panel(
            task_title(task),
            f"{task_title(task)}. Primary dev score: {words}.",
            max(3.2, 1.1 + 0.55 * len(groups)),
            2.8 + 0.03 * longest,
            "y",
        )
        with panel as axes:
            draw(axes, list(groups.values()))
            reference = _reference(task, teachers)
            if reference is not None:
                axes.axhline(reference[1], color=MUTED, linestyle=(0, (4, 3)), linewidth=1.2)
            slanted = longest > 6
            axes.set_xticks(
                range(1, len(groups) + 1),
                list(groups),
                rotation=35 if slanted else 0,
                ha="right" if slanted else "center",
            )
            axes.tick_params(axis="x", length=0, labelcolor=INK)
            axes.set_ylabel("primary dev score")
        panels.append(panel)
    return panels


def heat_panels(
    points: Sequence[RunPoint],
    keys: tuple[str, str],
    words: tuple[Callable[[RunPoint], str], Callable[[RunPoint], str]],
) -> list[Panel]:
    """Mean scores by two things, each value written in; one for each method and task, where they are neither."""
    panels = []
    for label, own in by_key(points, lambda one: _map_of(one, keys)).items():
        rows, columns = (list(dict.fromkeys(map(word, own))) for word in words)
        found: dict[tuple[str, str], list[float]] = {}
        for run in own:
            if run.score is not None:
                found.setdefault((words[0](run), words[1](run)), []).append(run.score)
        if not found:
            continue
        means = np.array(
            [[fmean(found[r, c]) if (r, c) in found else np.nan for c in columns] for r in rows]
        )
        title = label or "mean scores"
        said = "; ".join(f"{r}, {c} {fmean(v):.1f}" for (r, c), v in found.items())
        low, high = float(np.nanmin(means)), float(np.nanmax(means))
        # A small step should not look like a cliff.
        room = max((high - low) * 0.02, (SCORE_SPAN - (high - low)) / 2)
        panel = map_panel(
            title,
            f"{title}. {said}.",
            (rows, columns),
            means,
            span=(low - room, high + room),
            text="{:.1f}",
            labels=(_said(keys[0]), _said(keys[1])),
        )
        panels.append(panel)
    return panels


def _map_of(point: RunPoint, keys: tuple[str, str]) -> str:
    """The map of a run: by the settings that its rows and columns do not show."""
    said = {"method": point.label, "task": task_title(point.task)}
    return ", ".join(text for key, text in said.items() if key not in keys)


def by_key(points: Sequence[RunPoint], key: Callable[[RunPoint], str]) -> dict[str, list[RunPoint]]:
    """The points in groups of one key, in the order of the first of each."""
    found: dict[str, list[RunPoint]] = {}
    for point in points:
        found.setdefault(key(point), []).append(point)
    return found


def _row(point: RunPoint) -> str:
    """A method, with the condition where a study has axes."""
    said = [f"{key.rpartition('.')[2]} {value}" for key, value in point.condition.items()]
    return ", ".join([point.label, *said])


def _series(name: str, style: int, found: Mapping[float, list[float]]) -> Series:
    x = sorted(found)
    return Series(
        name,
        style,
        tuple(x),
        tuple(fmean(found[place]) for place in x),
        tuple(min(found[place]) for place in x),
        tuple(max(found[place]) for place in x),
    )


def _reference(task: str, teachers: Teachers) -> tuple[str, float] | None:
    return ("teacher", teachers[task]) if task in teachers else None


# What part each of several teachers has in a run, by task (SKDBERT, Figures 2 and 5 to 19).


def share_panels(points: Sequence[RunPoint]) -> list[Panel]:
    """Probability of being sampled, or weight in the mean, of each teacher (columns) on each task (rows).

    One per method; the mean over its runs, whose teachers may rank differently. A method that learns from
    one teacher, or whose teachers have no such part (TAKD), has no drawing.
    """
    panels = []
    for label, own in by_key(points, lambda one: one.label).items():
        found: dict[tuple[str, str], list[float]] = {}
        for run in own:
            for name, share in _shares(run):
                found.setdefault((task_title(run.task), name), []).append(share)
        if not found:
            continue
        rows = list(dict.fromkeys(task for task, _ in found))
        columns = list(dict.fromkeys(name for _, name in found))
        means = np.array(
            [[fmean(found[r, c]) if (r, c) in found else np.nan for c in columns] for r in rows]
        )
        said = "; ".join(f"{task}, {name} {fmean(v):.2f}" for (task, name), v in found.items())
        panels.append(
            map_panel(
                label,
                f"{label}. {said}.",
                (rows, columns),
                means,
                span=(0.0, max(float(np.nanmax(means)), 2 / len(columns))),
                text="{:.2f}",
                labels=("task", "teacher"),
            )
        )
    return panels


def _shares(run: RunPoint) -> list[tuple[str, float]]:
    team = run.record.team
    members = [] if team is None else team.members
    return [
        (run.members.get(Path(one.path).name, one.name), one.share)
        for one in members
        if one.share is not None
    ]
