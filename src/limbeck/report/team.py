"""The page of a team: its members in a table, then who differs from whom and who adds anything.

Part of `limbeck.report`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from limbeck.evaluation.team import TeamOverview
from limbeck.records.facts import ModelFacts
from limbeck.report.page import fill, write_page
from limbeck.report.plots import name_rows, reliability_panel, short, value_cells
from limbeck.report.sections import Section
from limbeck.report.svg import INK, MUTED, Panel, series_colour
from limbeck.tables.team import ENSEMBLE, team_notes, team_table

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
        sections=[members_section(team, models), *team_sections(team)],
    )
    return write_page(page, out_path, TEAM_PAGE)


def members_section(team: TeamOverview, models: Mapping[str, ModelFacts]) -> Section:
    """The members in a table."""
    table = team_table(team, models)
    return Section("members", "Members", "", [], tables=[table], notes=team_notes(team))


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
    drawings = [
        reliability_panel(name, found.bins, found.error) for name, found in everyone.items()
    ]
    lead = (
        "Bars: the share of right predictions among those made with a confidence in that range; the "
        "fuller the range, the darker. Marks: the mean confidence. A bar that ends below its mark "
        "belongs to a member that is too sure, and dashed is what would be exact."
    )
    return Section("calibration", "How sure each is", lead, drawings, layout="small")


# The drawings of a team: who differs from whom, what each adds. Part of `limbeck.report`,
# beside `plots`.


def pair_map(title: str, names: Sequence[str], matrix: np.ndarray, *, percent: bool) -> Panel:
    """A symmetric matrix (k, k) of `names`, the first at the top, each value written in.

    The diagonal, which says nothing of a pair, is left out; `percent` writes 100 times the value.
    """
    matrix = np.array(matrix, dtype=float)
    np.fill_diagonal(matrix, np.nan)
    said = "; ".join(
        f"{first} and {second} {matrix[row, column]:.3g}"
        for (row, first), (column, second) in itertools.combinations(enumerate(names), 2)
    )
    count = len(names)
    side = 0.42 * count
    longest = 0.075 * max(map(len, names))

    def written(value: float) -> str:
        if not np.isfinite(value):
            return ""
        return f"{100 * value:.1f}" if percent else short(value)

    panel = Panel(title, f"{title}: {said}.", 0.9 + longest + side, 1.0 + side, "none")
    with panel as axes:
        low, high = float(np.nanmin(matrix)), float(np.nanmax(matrix))
        # Equal values are neither low nor high.
        room = (high - low) * 0.02 or 0.5
        value_cells(axes, matrix, low=low - room, high=high + room, text=written)
        axes.set_xticks(range(1, count + 1))
        axes.set_yticks(
            range(1, count + 1), [f"{name}  {row}" for row, name in enumerate(names, start=1)]
        )
        axes.invert_yaxis()
    return panel


def additions(names: Sequence[str], adds: np.ndarray, *, x_label: str) -> Panel:
    """A bar a member, from the top: to the right what the team gains by it, to the left loses."""
    said = "; ".join(f"{name} {value:+.2f}" for name, value in zip(names, adds, strict=True))
    panel = Panel("", f"{x_label}: {said}.", 5.6, 0.8 + 0.3 * len(names), grid="x")
    with panel as axes:
        colours = [series_colour(2 if value >= 0 else 1) for value in adds]
        axes.barh(range(len(names)), adds, height=0.6, color=colours)
        axes.axvline(0, color=MUTED, linewidth=1)
        for row, value in enumerate(adds):
            axes.annotate(
                f"{value:+.2f}".replace("-", "−"), (value, row), textcoords="offset points",
                xytext=(4 if value >= 0 else -4, 0), ha="left" if value >= 0 else "right",
                va="center", color=INK, fontsize=8,
            )  # fmt: skip
        name_rows(axes, names)
        axes.margins(x=0.18)
        axes.set_xlabel(x_label)
    return panel
