"""A team in a table: what each member scores, what the team loses without it, how sure it is.

Part of `limbeck.tables`: rows of text, for the terminal and for the page alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from limbeck.evaluation.calibration import Calibration
from limbeck.evaluation.team import TeamOverview
from limbeck.records import Record
from limbeck.records.facts import ModelFacts
from limbeck.support.words import count_of
from limbeck.tables.cells import CellTable, decimal, duration, magnitude, shown, signed
from limbeck.tables.model import columns_of, knows, values_of
from limbeck.tables.profiles import get_profile

ENSEMBLE = "ensemble"


def team_table(team: TeamOverview, models: Mapping[str, ModelFacts]) -> CellTable:
    """One row a member, and one of their ensemble; scores and shares are percentages."""
    found = team.diversity
    cells = [["member", "layers", "width", "parameters", "score", "team without it", "adds"]]
    if team.calibrations:
        cells[0] += ["confidence", "calibration error", "Brier", "NLL"]
    worth = zip(found.names, found.scores, found.without, found.adds, strict=True)
    for number, (name, score, without, adds) in enumerate(worth, start=1):
        model = models[name]
        size = [shown(model.layers), shown(model.hidden_size), shown(model.parameters, magnitude)]
        gain = shown(adds if np.isfinite(adds) else None, signed)
        row = [f"{number} {name}", *size, _score(score), _score(without), gain]
        cells.append([*row, *_calibration(team.calibrations.get(name))])
    last = [ENSEMBLE, "", "", "", _score(found.ensemble), "", ""]
    title = f"{count_of(len(found.names), 'member')} and their ensemble"
    return CellTable(title, [*cells, [*last, *_calibration(team.ensemble)]])


def pairs_table(team: TeamOverview) -> CellTable:
    """The members' disagreement in pairs."""
    said = "% of examples predicted differently" if team.calibrations else "100 · (1 − correlation)"
    names = team.diversity.names
    cells = [["", *(str(number) for number in range(1, len(names) + 1))]]
    for row, values in enumerate(100 * team.diversity.pairs["disagreement"]):
        shares = ["·" if row == column else _score(value) for column, value in enumerate(values)]
        cells.append([f"{row + 1} {names[row]}", *shares])
    return CellTable(f"Disagreement: {said}", cells)


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


def _calibration(found: Calibration | None) -> list[str]:
    if found is None:
        return []
    shares = [f"{100 * share:.1f}" for share in (found.confidence, found.error)]
    return [*shares, f"{found.brier:.3f}", f"{found.likelihood:.3f}"]


def _score(value: float) -> str:
    return decimal(value if np.isfinite(value) else None)


# The members of a team in a table: size and scores of each run, in the order given. Other than
# `build_table` it shows single runs: nothing is averaged.


TEAM_PROFILE = "skd-dev"
"""SKD weighs its teachers by these scores."""


def members_table(members: Mapping[str, Record | None], profile: str = TEAM_PROFILE) -> CellTable:
    """Name, layers, width, heads, parameters, dev scores and training time of each run.

    A task that the profile leaves out has its benchmark's own score. A run without a record, or one
    that failed, is a row without numbers. Raises LimbeckError for an unknown profile.
    """
    records = [record for record in members.values() if record is not None]
    known = get_profile(profile).columns
    profile = profile if all(record.task in known for record in records) else "glue"
    columns = columns_of(records, profile, out_of_domain="left out")
    follows = any(knows(record.task) for record in records)
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
