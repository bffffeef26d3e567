"""The page of a team: its members in a table, then who differs from whom and who adds anything.

Part of `limbeck.reporting.pages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from limbeck.evaluation.team import TeamOverview
from limbeck.records import ModelFacts
from limbeck.reporting.pages.class_plots import reliability
from limbeck.reporting.pages.content import Section
from limbeck.reporting.pages.filling import fill, write_page
from limbeck.reporting.pages.team_plots import additions, pair_map
from limbeck.tables.teachers import ENSEMBLE, team_headings, team_notes, team_rows

TEAM_PAGE = "team.html"


def write_team_page(
    team: TeamOverview,
    models: Mapping[str, ModelFacts],
    out_path: str | Path,
    *,
    title: str,
    subtitle: str,
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


def team_sections(team: TeamOverview) -> list[Section]:
    """What is drawn of a team, in reading order; without pairs if it has one member."""
    sections = []
    if len(team.diversity.names) > 1:
        sections += [_additions(team), _pairs(team)]
    if team.calibrations:
        sections.append(_reliability(team))
    return sections


def _additions(team: TeamOverview) -> Section:
    found = team.diversity
    lead = (
        f"The score of the ensemble of all members ({found.ensemble:.1f}) less that of all but one. A "
        "member to the left of zero can be left out of an ensemble."
    )
    drawing = additions(found.names, found.adds, x_label="points of the team's score")
    return Section("adds", "What each member adds", lead, [drawing], layout="wide")


# Of each measure of pairs its title, what it is, and whether it is a share to show in percent.
_PAIRS = {
    "disagreement": ("Disagreement", "Disagreement: % of examples predicted differently.", True),
    "double_fault": ("Both wrong", "Both wrong: % of examples.", True),
    "q_statistic": (
        "Q statistic",
        "Q (Yule): 1 where two err on the same examples, 0 where they err independently, below 0 "
        "where they err on different ones.",
        False,
    ),
}
_NUMBER_PAIRS = {
    "disagreement": ("Disagreement", "Disagreement: 100 · (1 − correlation).", True),
    "difference": ("Difference", "Difference: mean absolute distance of two predictions.", False),
}
# Maps of more members than this stand below each other, or their numbers cannot be read.
_MOST_BESIDE = 9


def _pairs(team: TeamOverview) -> Section:
    found = team.diversity
    maps = {
        key: said
        for key, said in (_PAIRS if team.calibrations else _NUMBER_PAIRS).items()
        if np.isfinite(_others(found.pairs[key])).any()
    }
    drawings = [
        pair_map(title, found.names, found.pairs[key], percent=percent)
        for key, (title, _, percent) in maps.items()
    ]
    lead = " ".join(
        ["Members that predict alike teach alike.", *(said for _, said, _ in maps.values())]
    )
    many = len(found.names) > _MOST_BESIDE
    return Section("pairs", "Who differs from whom", lead, drawings, layout="wide" if many else "")


def _others(matrix: np.ndarray) -> np.ndarray:
    return matrix[~np.eye(len(matrix), dtype=bool)]


def _reliability(team: TeamOverview) -> Section:
    everyone = dict(team.calibrations)
    if team.ensemble is not None and len(everyone) > 1:
        everyone[ENSEMBLE] = team.ensemble
    drawings = [reliability(name, found.bins, found.error) for name, found in everyone.items()]
    lead = (
        "Bars: the share of right predictions among those made with a confidence in that range; the "
        "fuller the range, the darker. Marks: the mean confidence. A bar that ends below its mark "
        "belongs to a member that is too sure, and dashed is what would be exact."
    )
    return Section("calibration", "How sure each is", lead, drawings, layout="small")
