"""Several teachers on a run's page: how good each is, how often it was asked, what was learned.

Part of `limbeck.reporting.pages`. SKDBERT shows the distributions in its Figures 2 and 5 to 19.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from limbeck.records import Record, TeamFacts
from limbeck.reporting.pages import plots
from limbeck.reporting.pages.sections import Section, legend_entry

# More drawings than this are for the runs' own pages.
_MOST_RUNS = 4


def team_section(runs: Sequence[Record]) -> Section:
    """Scores, shares and, where they were learned, the course of the shares."""
    drawings: list[str] = []
    names: dict[str, int] = {}
    shown = [run for run in runs if run.team is not None][:_MOST_RUNS]
    for run in shown:
        assert run.team is not None  # chosen for it
        for member in run.team.members:
            names.setdefault(member.name, len(names))
        said = f"{run.method}, seed {run.seed}"
        drawings += [*_scores(said, run.team, names), *_shares(said, run.team)]
        if run.team.by == "adaptive":
            drawings.append(_course(said, run, names))
    learned = any(run.team and run.team.by == "adaptive" for run in shown)
    legend: list[dict[str, Any]] = []
    if learned:
        legend = [legend_entry(name, style) for name, style in names.items()]
    lead = (
        "Each teacher's dev score, with that of a student distilled from it alone where there is "
        "one (the second dot), and its part in the run: its sampling probability or its weight."
    )
    return Section("team", "Teachers", lead, drawings, legend)


def _scores(said: str, team: TeamFacts, names: dict[str, int]) -> list[str]:
    rows = []
    for member in team.members:
        known = [value for value in (member.score, member.student_score) if value is not None]
        if known:
            rows.append((member.name, names[member.name], known))
    return (
        [plots.dots(f"{said}: scores", rows, x_label="dev score", least_span=plots.SCORE_SPAN)]
        if rows
        else []
    )


def _shares(said: str, team: TeamFacts) -> list[str]:
    known = [member for member in team.members if member.share is not None]
    bars = [
        plots.StackedBars(member.name, (("share", float(member.share or 0)),)) for member in known
    ]
    if not bars:
        return []
    label = "probability of being sampled" if team.use == "sample" else "weight in the mean"
    label += ", at the start" if team.by == "adaptive" else ""
    return [plots.stacks(f"{said}: {team.by}", bars, x_label=label, unit="share")]


def _course(said: str, run: Record, names: dict[str, int]) -> str:
    epochs = [epoch for epoch in run.epochs if epoch.sampling_probabilities]
    series = []
    for name in epochs[0].sampling_probabilities if epochs else ():
        x = tuple(float(epoch.epoch) for epoch in epochs)
        y = tuple(float(epoch.sampling_probabilities[name] or 0) for epoch in epochs)
        series.append(plots.Series(name, names[name], x, y, y, y))
    return plots.lines(
        f"{said}: probabilities", series, x_label="epoch", y_label="probability of being sampled"
    )
