"""Which teacher: several of them, drawn one a step or answering together.

On the way of a training step: after `teachers`, before the engine, which asks a team at each step
who answers.
"""

from limbeck.teams.bandit import Bandit
from limbeck.teams.chances import Chances, draw, shares
from limbeck.teams.forming import by_capacity, form, weighed
from limbeck.teams.spec import RANKINGS, USES, ChainSpec, DrawSpec, TeamSpec, TogetherSpec
from limbeck.teams.team import Answering, Drawn, Team, Together, members_of, short_names

__all__ = [
    "RANKINGS",
    "USES",
    "Answering",
    "Bandit",
    "ChainSpec",
    "Chances",
    "DrawSpec",
    "Drawn",
    "Team",
    "TeamSpec",
    "Together",
    "TogetherSpec",
    "by_capacity",
    "draw",
    "form",
    "members_of",
    "shares",
    "short_names",
    "weighed",
]
