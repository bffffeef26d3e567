"""A team on the terminal: the numbers that were put in."""

from __future__ import annotations

import numpy as np
import pytest

from limbeck.evaluation.team import TeamScores, team_of
from limbeck.records.facts import ModelFacts
from limbeck.tables.team import pairs_table, team_notes, team_table

LABELS = np.array([0, 0, 0, 0, 1, 1, 1, 1])
ANSWERS = {"deep": [0, 0, 0, 0, 1, 1, 1, 0], "wide": [0, 0, 1, 0, 1, 1, 1, 1], "odd": [1] * 8}
MODELS = {
    "deep": ModelFacts(parameters=1_234_000, layers=12, hidden_size=64),
    "wide": ModelFacts(parameters=50_000, layers=2, hidden_size=256),
    "odd": ModelFacts(),
}


@pytest.fixture
def team() -> TeamScores:
    # Logits of 0 and ln 9, 19 and 99: the odd one is surest.
    odds = {"deep": 9, "wide": 19, "odd": 99}
    return team_of(
        {name: np.eye(2)[classes] * np.log(odds[name]) for name, classes in ANSWERS.items()},
        LABELS,
        lambda given, right: 100 * float((given.argmax(axis=1) == right).mean()),
    )


def test_a_row_holds_the_members_numbers(team) -> None:
    _, deep, wide, odd, ensemble = team_table(team, MODELS).cells
    # The deep and the wide one outvote the odd one only together; alone with either it decides.
    assert deep == ["1 deep", "12", "64", "1.23M", "87.5", "50.0", "+37.5"]
    assert wide[4:7] == ["87.5", "50.0", "+37.5"]
    assert odd[1:7] == ["–", "–", "–", "50.0", "87.5", "0.0"]
    assert ensemble[0] == "ensemble"
    assert ensemble[4] == "87.5"


def test_pairs_are_numbered_and_what_the_team_could_reach_is_said(team) -> None:
    pairs = pairs_table(team)
    assert pairs.title.startswith("Disagreement")
    assert pairs.cells[2] == ["2 wide", "25.0", "·", "37.5"]
    assert any("at least one is right on 100.0 %" in note for note in team_notes(team))
