"""Which teacher: several of them, one sampled for each step, or an ensemble.

Training asks a team at each step
which of its members to run.
"""

from limbeck.teachers.sampling import LearnedProbabilities, SamplingProbabilities, draw, shares
from limbeck.teachers.team import (
    Answering,
    EnsembleTeam,
    SampledTeam,
    Team,
    by_capacity,
    chain_links,
    form,
    has_ties,
    members_of,
)
from limbeck.teachers.team_spec import (
    RANKINGS,
    USES,
    ChainSpec,
    EnsembleSpec,
    SampledSpec,
    TeamSpec,
)

__all__ = [
    "RANKINGS",
    "USES",
    "Answering",
    "ChainSpec",
    "EnsembleSpec",
    "EnsembleTeam",
    "LearnedProbabilities",
    "SampledSpec",
    "SampledTeam",
    "SamplingProbabilities",
    "Team",
    "TeamSpec",
    "by_capacity",
    "chain_links",
    "draw",
    "form",
    "has_ties",
    "members_of",
    "shares",
]
