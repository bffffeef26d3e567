"""The page of a team: its members in a table, then who differs from whom and who adds anything.

Part of `limbeck.report`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from limbeck.analysis import Team
from limbeck.records import ModelFacts
from limbeck.report.content import Section
from limbeck.report.filling import fill, write_page
from limbeck.report.team_plots import additions, pair_map, reliability
from limbeck.table.team import TOGETHER, team_headings, team_notes, team_rows

TEAM_PAGE = "team.html"


def write_team_page(
    team: Team, models: Mapping[str, ModelFacts], out_path: str | Path, *, title: str, subtitle: str
) -> Path:
    """Write the page and return its path; `out_path` is a file, or a folder that gets `team.html`.

    `models` has each member's size by name. Raises LimbeckError for a place that cannot be written.
    """
    page = fill(
        "team.html.j2",
        title=title,
        subtitle=subtitle,
        headings=team_headings(team),
        rows=team_rows(team, models),
        notes=team_notes(team),
        sections=team_sections(team),
    )
    return write_page(page, out_path, TEAM_PAGE)


def team_sections(team: Team) -> list[Section]:
    """What is drawn of a team, in reading order; without pairs if it has one member."""
    sections = []
    if len(team.diversity.names) > 1:
        sections += [_additions(team), _pairs(team)]
    if team.calibrations:
        sections.append(_reliability(team))
    return sections


def _additions(team: Team) -> Section:
    found = team.diversity
    lead = (
        f"The score of all members together ({found.together:.1f}) less that of all but one. A "
        "member to the left of zero can be left out of a team that answers with its mean."
    )
    drawing = additions(
        "What each member adds", found.names, found.adds, x_label="points of the team's score"
    )
    return Section("adds", "What each member adds", lead, [drawing], layout="wide")


def _pairs(team: Team) -> Section:
    found = team.diversity
    named = {
        "disagreement": ("Disagreement", "share of examples the two answer differently", False),
        "double_fault": ("Both wrong", "share of examples both have wrong; diagonal: one", True),
        "q_statistic": ("Q statistic", "1: err on the same examples, 0: independently", False),
    }
    if "difference" in found.pairs:
        named = {
            "disagreement": ("Disagreement", "1 − correlation of the two outputs", False),
            "difference": ("Difference", "mean absolute difference of the two outputs", False),
        }
    drawings = [
        pair_map(title, found.names, found.pairs[key], measure=measure, diagonal=diagonal)
        for key, (title, measure, diagonal) in named.items()
        if np.isfinite(found.pairs[key]).any()
    ]
    lead = (
        "Members that answer alike teach alike. "
        + "; ".join(f"{title.lower()}: {measure}" for title, measure, _ in named.values())
        + "."
    )
    return Section("pairs", "Who differs from whom", lead, drawings)


def _reliability(team: Team) -> Section:
    everyone = dict(team.calibrations)
    if team.together is not None and len(everyone) > 1:
        everyone[TOGETHER] = team.together
    drawings = [reliability(name, found) for name, found in everyone.items()]
    lead = (
        "Bars: the share of right answers among those given with a confidence in that range; the "
        "fuller the range, the darker. Marks: the mean confidence. A bar that ends below its mark "
        "belongs to a member that is too sure, and dashed is what would be exact."
    )
    return Section("calibration", "How sure each is", lead, drawings, layout="small")
