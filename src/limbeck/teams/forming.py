"""From teachers and how they are to teach to a team. Part of `limbeck.teams`."""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.teachers import Teacher
from limbeck.teams.bandit import Bandit
from limbeck.teams.chances import Chances, shares
from limbeck.teams.spec import ChainSpec, DrawSpec, TeamSpec, TogetherSpec
from limbeck.teams.team import Drawn, Team, Together


def form(spec: TeamSpec, members: Sequence[Teacher], names: Sequence[str]) -> Teacher | Team:
    """Whoever teaches; where scores decide, all count alike as yet.

    Of a chain it is the smallest, in whose place its distilled form is put later.
    """
    match spec:
        case DrawSpec(by="adaptive"):
            given = {key: getattr(spec, key) for key in ("block", "explore", "rate")}
            known = {key: value for key, value in given.items() if value is not None}
            return Drawn(members, names, Bandit(len(members), **known))
        case DrawSpec():
            return Drawn(members, names, Chances(_at_first(spec.by, len(members))))
        case TogetherSpec():
            return Together(members, names, _at_first(spec.by, len(members)))
        case ChainSpec():
            return members[by_capacity(members)[-1]]


def _at_first(by: str | list[float], count: int) -> list[float]:
    return shares("uniform" if isinstance(by, str) else by, None, count).tolist()


def weighed(team: Team, given: Sequence[float]) -> Team:
    """The same team with these shares."""
    if isinstance(team, Drawn):
        return Drawn(team.members, team.names, Chances(given))
    assert isinstance(team, Together)
    return Together(team.members, team.names, given)


def by_capacity(members: Sequence[Teacher]) -> list[int]:
    """Places of the teachers from the one of most parameters to that of fewest."""
    sizes = [member.model.num_parameters() for member in members]
    return sorted(range(len(members)), key=lambda place: -sizes[place])
