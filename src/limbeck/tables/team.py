"""A team in a table: what each member scores, what the team loses without it, how sure it is.

Part of `limbeck.tables`: rows of text, for the terminal and for the page alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from limbeck.evaluation.calibration import Calibration
from limbeck.evaluation.team import TeamOverview
from limbeck.records import Record
from limbeck.records.facts import ModelFacts
from limbeck.tables.cells import NOTHING, decimal, duration, magnitude, signed
from limbeck.tables.model import columns_of, knows, values_of
from limbeck.tables.profiles import get_profile

ENSEMBLE = "ensemble"

_SIZE = ("layers", "width", "parameters")
_WORTH = ("score", "team without it", "adds")
_CALIBRATION = ("confidence", "calibration error", "Brier", "NLL")


def team_headings(team: TeamOverview) -> tuple[str, ...]:
    """The columns of `team_rows`."""
    return ("member", *_SIZE, *_WORTH, *(_CALIBRATION if team.calibrations else ()))


def team_rows(team: TeamOverview, models: Mapping[str, ModelFacts]) -> list[tuple[str, ...]]:
    """One row a member, and one of their ensemble; scores and shares are percentages."""
    found = team.diversity
    rows = []
    for name, score, without, adds in zip(
        found.names, found.scores, found.without, found.adds, strict=True
    ):
        row = (
            name,
            *_size(models[name]),
            _score(score),
            _score(without),
            signed(adds) if np.isfinite(adds) else NOTHING,
        )
        rows.append((*row, *_calibration(team.calibrations.get(name))))
    last = (ENSEMBLE, *[""] * len(_SIZE), _score(found.ensemble), "", "")
    return [*rows, (*last, *_calibration(team.ensemble))]


def team_notes(team: TeamOverview) -> list[str]:
    """What the numbers are, in sentences."""
    found = team.diversity
    best = int(np.argmax(found.scores))
    notes = [
        f"Best alone: {found.names[best]}, {found.scores[best]:.1f}; ensemble {found.ensemble:.1f}"
        + (
            f"; at least one is right on {found.oracle:.1f} %." if found.oracle is not None else "."
        ),
        f"{found.examples} examples: one of them is {100 / found.examples:.2f} points of accuracy."
        if found.oracle is not None
        else f"{found.examples} examples.",
        "Ensemble: the mean of all logits. Adds: what the team scores more with the member than "
        "without it.",
    ]
    if team.calibrations:
        notes.append(
            "Confidence: mean probability of the predictions. Calibration error: its distance from the "
            "accuracy, over 15 bins (Guo et al. 2017). Brier: 0 to 2. NLL: nats."
        )
    return notes


def team_tables(team: TeamOverview, models: Mapping[str, ModelFacts]) -> RenderableType:
    """The members and their disagreement in pairs, for a terminal."""
    table = Grid(header_style="bold", title_justify="left")
    for number, heading in enumerate(team_headings(team)):
        table.add_column(heading, justify="right" if number else "left", no_wrap=number == 0)
    *members, ensemble = team_rows(team, models)
    for number, row in enumerate(members, start=1):
        table.add_row(f"{number} {row[0]}", *row[1:])
    table.add_section()
    table.add_row(*ensemble)
    parts: list[RenderableType] = [table, *map(Text, team_notes(team))]
    if len(members) > 1:
        parts += [Text(), _pairs(team)]
    return Group(*parts)


def _pairs(team: TeamOverview) -> Grid:
    said = "% of examples predicted differently" if team.calibrations else "100 · (1 − correlation)"
    table = Grid(header_style="bold", title=f"Disagreement: {said}", title_justify="left")
    table.add_column("")
    for number in range(1, len(team.diversity.names) + 1):
        table.add_column(str(number), justify="right")
    matrix = 100 * team.diversity.pairs["disagreement"]
    for row, name in enumerate(team.diversity.names):
        cells = [
            "·" if row == column else _score(value) for column, value in enumerate(matrix[row])
        ]
        table.add_row(f"{row + 1} {name}", *cells)
    return table


def _size(model: ModelFacts) -> tuple[str, ...]:
    whole = ["–" if value is None else str(value) for value in (model.layers, model.hidden_size)]
    return (*whole, "–" if model.parameters is None else magnitude(model.parameters))


def _calibration(found: Calibration | None) -> tuple[str, ...]:
    if found is None:
        return ()
    shares = (f"{100 * share:.1f}" for share in (found.confidence, found.error))
    return (*shares, f"{found.brier:.3f}", f"{found.likelihood:.3f}")


def _score(value: float) -> str:
    return decimal(value if np.isfinite(value) else None)


# The members of a team in a table: size and scores of each run, in the order given. Other than
# `build_table` it shows single runs: nothing is averaged.


TEAM_PROFILE = "skd-dev"
"""SKD weighs its teachers by these scores."""


def members_table(members: Mapping[str, Record | None], profile: str = TEAM_PROFILE) -> Grid:
    """Name, layers, width, heads, parameters, dev scores and training time of each run.

    A task that the profile leaves out has its benchmark's own score. A run without a record, or one
    that failed, is a row without numbers. Raises LimbeckError for an unknown profile.
    """
    records = [record for record in members.values() if record is not None]
    known = get_profile(profile).columns
    profile = profile if all(record.task in known for record in records) else "glue"
    columns = columns_of(records, profile, out_of_domain="left out")
    follows = any(knows(record.task) for record in records)
    caption = f"dev scores of profile {profile}" if follows else "primary dev scores"
    table = Grid(header_style="bold", caption=caption, caption_justify="left")
    table.add_column("name", no_wrap=True)
    titles = [column.title for column in columns]
    for heading in ("layers", "width", "heads", "parameters", *titles, "time"):
        table.add_column(heading, justify="right")
    for name, record in members.items():
        if record is None or record.status != "finished":
            said = "failed" if record is None else record.status
            table.add_row(name, *[""] * 4, *[Text(said, style="red")] * len(columns), "")
            continue
        model, scores = record.student, values_of(record, profile)
        table.add_row(
            name,
            *(
                "–" if value is None else str(value)
                for value in (model.layers, model.hidden_size, model.heads)
            ),
            "–" if model.parameters is None else magnitude(model.parameters),
            *(decimal(scores.get(column.key)) for column in columns),
            "–" if record.cost.total_seconds is None else duration(record.cost.total_seconds),
        )
    return table
