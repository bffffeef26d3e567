"""A team on the terminal and on its page: the numbers that were put in, and a page that is whole."""

from __future__ import annotations

import numpy as np
import pytest

from limbeck.evaluation.team import TeamOverview, team_of
from limbeck.records.facts import ModelFacts
from limbeck.report import team_sections, write_team_page
from limbeck.tables.team import pairs_table, team_notes, team_table
from test_report import Page

LABELS = np.array([0, 0, 0, 0, 1, 1, 1, 1])
ANSWERS = {"deep": [0, 0, 0, 0, 1, 1, 1, 0], "wide": [0, 0, 1, 0, 1, 1, 1, 1], "odd": [1] * 8}
MODELS = {
    "deep": ModelFacts(parameters=1_234_000, layers=12, hidden_size=64),
    "wide": ModelFacts(parameters=50_000, layers=2, hidden_size=256),
    "odd": ModelFacts(),
}


@pytest.fixture
def team() -> TeamOverview:
    # Logits of 0 and ln 9, 19 and 99: their answers' probabilities are .9, .95 and .99.
    odds = {"deep": 9, "wide": 19, "odd": 99}
    return team_of(
        {name: np.eye(2)[classes] * np.log(odds[name]) for name, classes in ANSWERS.items()}, LABELS
    )


def test_a_row_holds_the_members_numbers(team) -> None:
    _, deep, wide, odd, ensemble = team_table(team, MODELS).cells
    # The deep and the wide one outvote the odd one only together; alone with either it decides.
    assert deep == ["1 deep", "12", "64", "1.23M", "87.5", "50.0", "+37.5", "90.0", "2.5",
                    f"{2 * (7 * 0.01 + 0.81) / 8:.3f}", f"{-(7 * np.log(0.9) + np.log(0.1)) / 8:.3f}"]  # fmt: skip
    assert wide[4:7] == ["87.5", "50.0", "+37.5"]
    assert odd[1:7] == ["–", "–", "–", "50.0", "87.5", "0.0"]
    assert ensemble[0] == "ensemble"
    assert ensemble[4] == "87.5"


def test_pairs_are_numbered_and_what_the_team_could_reach_is_said(team) -> None:
    pairs = pairs_table(team)
    assert pairs.title.startswith("Disagreement")
    assert pairs.cells[2] == ["2 wide", "25.0", "·", "37.5"]
    assert any("at least one is right on 100.0 %" in note for note in team_notes(team))


def test_the_page_is_whole_and_asks_for_nothing(team, tmp_path) -> None:
    path = write_team_page(team, MODELS, tmp_path, title="A team", subtitle="of three")
    assert path == tmp_path / "team.html"
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert all(address.startswith("#") for address in page.addresses)
    for said in ("deep", "1.23M", "87.5", "+37.5", "A team"):
        assert any(said in word for word in page.words)
    # One drawing of additions, three of pairs, one of each member's confidence and of the team's.
    assert page.tags.count("figure") == 1 + 3 + 4
    said = " ".join(page.labels)
    assert "deep and wide 0.25" in said
    assert "deep +37.50; wide +37.50; odd +0.00" in said


def test_one_member_is_shown_without_pairs(tmp_path) -> None:
    team = team_of({"deep": np.eye(2)[ANSWERS["deep"]]}, LABELS)
    assert [section.key for section in team_sections(team)] == ["calibration"]
    write_team_page(team, MODELS, tmp_path / "own.html", title="One", subtitle="")
    assert (tmp_path / "own.html").is_file()


def test_numbers_are_shown_without_confidence(tmp_path) -> None:
    random = np.random.default_rng(0)
    labels = random.uniform(0, 5, 20)
    answers = {name: labels + random.normal(0, 1, 20) for name in ("deep", "wide")}
    answers["odd"] = np.ones(20)
    team = team_of(answers, labels, regression=True)
    assert [section.key for section in team_sections(team)] == ["adds", "pairs"]
    page = Page(
        write_team_page(team, MODELS, tmp_path, title="T", subtitle="").read_text(encoding="utf-8")
    )
    assert not any("NLL" in word for word in page.words)
