"""A team in a table: each member's scores, the team's loss without it, how the members differ.

Part of `limbeck.tables`: rows of text, for the terminal.
"""

from collections.abc import Mapping

import numpy as np

from limbeck.evaluation.team import TeamScores
from limbeck.records import Record
from limbeck.records.facts import ModelFacts
from limbeck.support.cells import CellTable, decimal, duration, magnitude, shown, signed
from limbeck.support.words import count_of
from limbeck.tables import profiles
from limbeck.tables.model import columns_of, values_of


def team_table(team: TeamScores, models: Mapping[str, ModelFacts]) -> CellTable:
    """One row a member, and one of their ensemble; scores and shares are percentages."""
    cells = [["member", "layers", "width", "parameters", "score", "team without it", "adds"]]
    worth = zip(team.names, team.scores, team.without, team.adds, strict=True)
    for number, (name, score, without, adds) in enumerate(worth, start=1):
        model = models[name]
        size = [shown(model.layers), shown(model.hidden_size), shown(model.parameters, magnitude)]
        gain = shown(adds if np.isfinite(adds) else None, signed)
        cells.append([f"{number} {name}", *size, _score(score), _score(without), gain])
    cells.append(["ensemble", "", "", "", _score(team.ensemble), "", ""])
    return CellTable(f"{count_of(len(team.names), 'member')} and their ensemble", cells)


def pairs_table(team: TeamScores) -> CellTable:
    """The members' disagreement in pairs."""
    numbers = team.oracle is None
    said = "100 · (1 − correlation)" if numbers else "% of examples predicted differently"
    names = team.names
    cells = [["", *(str(number) for number in range(1, len(names) + 1))]]
    for row, values in enumerate(100 * team.disagreement):
        shares = ["·" if row == column else _score(value) for column, value in enumerate(values)]
        cells.append([f"{row + 1} {names[row]}", *shares])
    return CellTable(f"Disagreement: {said}", cells)


def team_notes(team: TeamScores) -> list[str]:
    """The meaning of the numbers, in sentences."""
    best = int(np.argmax(team.scores))
    said = f"Best alone: {team.names[best]}, {team.scores[best]:.1f}; ensemble {team.ensemble:.1f}"
    count = f"{team.examples} examples"
    if team.oracle is not None:
        said += f"; at least one is right on {team.oracle:.1f} %"
        count += f": one of them is {100 / team.examples:.2f} points of accuracy"
    return [
        f"{said}.",
        f"{count}.",
        "Ensemble: the mean of all logits. Adds: the team's score with the member minus the score without it.",
    ]


def _score(value: float) -> str:
    return decimal(value if np.isfinite(value) else None)


# The members of a team in a table: size and scores of each run, in the order given. Other than
# `build_table` it shows single runs: nothing is averaged.


TEAM_PROFILE = "skd-dev"
"""SKD weighs its teachers by these scores."""


def members_table(members: Mapping[str, Record | None]) -> CellTable:
    """Name, layers, width, heads, parameters, dev scores and training time of each run.

    A task that the profile leaves out has its benchmark's own score. A run without a record, or one
    that failed, is a row without numbers.
    """
    records = [record for record in members.values() if record is not None]
    known = profiles.get_profile(TEAM_PROFILE).columns
    profile = TEAM_PROFILE if all(record.task in known for record in records) else "glue"
    columns = columns_of(records, profile, out_of_domain="left out")
    follows = any(profiles.knows(record.task) for record in records)
    said = f"Dev scores of profile {profile}" if follows else "Primary dev scores"
    titles = [column.title for column in columns]
    cells = [["name", "layers", "width", "heads", "parameters", *titles, "time"]]
    for name, record in members.items():
        if record is None or record.status != "finished":
            status = "failed" if record is None else record.status
            cells.append([name, *[""] * 4, *[status] * len(columns), ""])
            continue
        model, scores = record.student, values_of(record, profile)
        shape = map(shown, (model.layers, model.hidden_size, model.heads))
        reached = (decimal(scores.get(column.key)) for column in columns)
        time = shown(record.cost.total_seconds, duration)
        cells.append([name, *shape, shown(model.parameters, magnitude), *reached, time])
    return CellTable(said, cells)
