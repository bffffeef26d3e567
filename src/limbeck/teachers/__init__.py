"""Which teacher: several of them, one sampled for each step, or an ensemble.

Training asks a team at each step
which of its members to run.
"""

from limbeck.teachers.team import (
    RANKINGS,
    USES,
    ChainSpec,
    EnsembleSpec,
    EnsembleTeam,
    LearnedProbabilities,
    SampledSpec,
    SampledTeam,
    SamplingProbabilities,
    Team,
    TeamSpec,
    by_capacity,
    chain_links,
    form,
    has_ties,
    members_of,
    shares,
)

__all__ = [
    "RANKINGS",
    "USES",
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
    "form",
    "has_ties",
    "members_of",
    "shares",
]
