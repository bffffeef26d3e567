"""A team in a table: what each member scores, what the team loses without it, how sure it is.

Part of `limbeck.reporting.tables`: rows of text, for the terminal and for the page alike.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from limbeck.evaluation.calibration import Calibration
from limbeck.evaluation.team import TeamOverview
from limbeck.records import ModelFacts
from limbeck.reporting.tables.measured_columns import magnitude

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
        row = (name, *_size(models[name]), _score(score), _score(without), _signed(adds))
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
    return f"{value:.1f}" if np.isfinite(value) else "–"


def _signed(value: float) -> str:
    if not np.isfinite(value):
        return "–"
    return "0.0" if abs(value) < 0.05 else f"{value:+.1f}".replace("-", "−")
