"""From teachers and how they are to teach to a team. Part of `limbeck.teachers`."""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.teachers.bandit import Bandit
from limbeck.teachers.sampling import SamplingProbabilities, shares
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import EnsembleTeam, SampledTeam, Team
from limbeck.teachers.team_spec import ChainSpec, EnsembleSpec, SampledSpec, TeamSpec


def form(spec: TeamSpec, members: Sequence[Teacher], names: Sequence[str]) -> Teacher | Team:
    """Whoever teaches; where scores decide, all count alike as yet.

    Of a chain it is the smallest, in whose place its distilled form is put later.
    """
    match spec:
        case SampledSpec(by="adaptive"):
            given = {key: getattr(spec, key) for key in ("block", "explore", "rate")}
            known = {key: value for key, value in given.items() if value is not None}
            return SampledTeam(members, names, Bandit(len(members), **known))
        case SampledSpec():
            return SampledTeam(
                members, names, SamplingProbabilities(_at_first(spec.by, len(members)))
            )
        case EnsembleSpec():
            return EnsembleTeam(members, names, _at_first(spec.by, len(members)))
        case ChainSpec():
            return members[by_capacity(members)[-1]]


def _at_first(by: str | list[float], count: int) -> list[float]:
    return shares("uniform" if isinstance(by, str) else by, None, count).tolist()


def weighed(team: Team, given: Sequence[float]) -> Team:
    """The same team with these shares."""
    if isinstance(team, SampledTeam):
        return SampledTeam(team.members, team.names, SamplingProbabilities(given))
    assert isinstance(team, EnsembleTeam)
    return EnsembleTeam(team.members, team.names, given)


def by_capacity(
    members: Sequence[Teacher], scores: Sequence[float | None] | None = None
) -> list[int]:
    """Places of the teachers from the one of most parameters to that of fewest.

    Args:
        members: the teachers.
        scores: their dev scores, the higher the better. Of several teachers of one size the best is first: a chain
            starts at the strongest teacher. Without scores they stay in the given order.
    """
    sizes = _sizes(members)
    known = [float("-inf") if score is None else score for score in scores or [0.0] * len(members)]
    return sorted(range(len(members)), key=lambda place: (-sizes[place], -known[place]))


def has_ties(members: Sequence[Teacher]) -> bool:
    """Whether scores decide about the order of a chain: teachers have equal numbers of parameters."""
    return len(set(_sizes(members))) < len(members)


def chain_links(members: Sequence[Teacher]) -> list[tuple[int, int]]:
    """Places of every teacher and assistant that may follow each other in a chain, however equal sizes are scored."""
    sizes = _sizes(members)
    steps = sorted(set(sizes), reverse=True)
    rank = [steps.index(size) for size in sizes]
    pairs = ((large, small) for large in range(len(sizes)) for small in range(len(sizes)))
    return [
        (large, small)
        for large, small in sorted(pairs, key=lambda pair: (rank[pair[0]], rank[pair[1]]))
        if large != small and rank[small] - rank[large] in (0, 1)
    ]


def _sizes(members: Sequence[Teacher]) -> list[int]:
    return [member.model.num_parameters() for member in members]
