"""What part each of several teachers has in a run, by task (SKDBERT, Figures 2 and 5 to 19).

Part of `limbeck.lab.study`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from limbeck.lab.study.score_figures import RunPoint, by_key
from limbeck.lab.views.figures import map_panel
from limbeck.report.svg import Panel
from limbeck.tables.model import task_title


def share_panels(points: Sequence[RunPoint]) -> list[Panel]:
    """Probability of being sampled, or weight in the mean, of each teacher (columns) on each task (rows).

    One a method; the mean over its runs, whose teachers may rank differently. A method that learns from
    one teacher, or whose teachers have no such part (TAKD), has none.
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
