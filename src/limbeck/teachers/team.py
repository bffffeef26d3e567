"""Several teachers used as one: their settings in a recipe, their probabilities, and the teachers of each step.

Part of `limbeck.teachers`. A team selects the teacher of a step (`at`); the result has the interface of a
`Teacher`. A `Teacher` is a team of one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Protocol, Self, get_args

import numpy as np
import torch
from pydantic import BaseModel, Field, model_validator
from torch import Tensor, nn

from limbeck.activations import Request, Trace
from limbeck.functional import rank_distribution
from limbeck.input_transforms.input_transform import StepInputs
from limbeck.objectives.base import ModelShape
from limbeck.support.errors import LimbeckError
from limbeck.support.registry import Registry
from limbeck.support.settings import MOST, Count, Number, Settings, Share
from limbeck.support.step_state import StepState
from limbeck.teachers.teacher import Teacher

Ranking = Literal["uniform", "teacher-rank", "student-rank"]
RANKINGS: tuple[Ranking, ...] = get_args(Ranking)


class _Ranked(Settings):
    student_runs: str | None = Field(
        None,
        description="student-rank: folder of the runs that distill a student from each teacher "
        "alone, to be shared by several runs; OUT/students by default",
    )
    student_epochs: Number | None = Field(
        None,
        gt=0,
        le=10**6,
        description="student-rank: passes of those runs; as the run's, if left out",
    )

    @model_validator(mode="after")
    def _says_what_it_reads(self) -> "_Ranked":
        by = getattr(self, "by", None)
        idle = [key for key in _Ranked.model_fields if getattr(self, key) is not None]
        if idle and by not in ("student-rank", "best-of"):
            raise ValueError(f"`{'`, `'.join(idle)}`: read with by: student-rank or best-of only")
        return self


class SampledSpec(_Ranked):
    """One teacher sampled for each optimization step (SKDBERT)."""

    use: Literal["sample"]
    by: Ranking | Literal["best-of", "adaptive"] | list[Number] = Field(
        "uniform",
        description="probability of each teacher: uniform, by the rank of its dev score or of its "
        "student's, best-of (a run with each of these three, the best on dev), adaptive (learned "
        "in training), or one number per teacher",
    )
    holdout: Count | None = Field(
        None, description="adaptive: training rows held out to see progress on (128)"
    )
    block: Count | None = Field(
        None, description="adaptive: optimization steps that a sampled teacher stays (10)"
    )
    explore: Share | None = Field(
        None, description="adaptive: share of samples that are uniform (0.2)"
    )
    rate: Number | None = Field(
        None, gt=0, le=10, description="adaptive: how fast probabilities follow progress (0.1)"
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> "SampledSpec":
        own = ("holdout", "block", "explore", "rate")
        idle = [key for key in own if getattr(self, key) is not None]
        if idle and self.by != "adaptive":
            raise ValueError(f"`{'`, `'.join(idle)}`: read with by: adaptive only")
        _check_weights(self.by)
        return self


class EnsembleSpec(_Ranked):
    """An ensemble: all teachers run in every step; soft labels come from their weighted mean (WKD)."""

    use: Literal["ensemble"]
    by: Ranking | Literal["best-of"] | list[Number] = Field(
        "uniform",
        description="weight of each teacher in the mean of the logits: uniform, by the rank of its "
        "dev score or of its student's, best-of (a run with each of these three, the best on dev), "
        "or one number per teacher",
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> "EnsembleSpec":
        _check_weights(self.by)
        return self


class ChainSpec(Settings):
    """From the largest to the smallest, each distils the next one; the last one teaches (TAKD)."""

    use: Literal["chain"]


TeamSpec = Annotated[SampledSpec | EnsembleSpec | ChainSpec, Field(discriminator="use")]

USES: dict[str, type[BaseModel]] = {
    "sample": SampledSpec,
    "ensemble": EnsembleSpec,
    "chain": ChainSpec,
}
"""The settings of each value of `use`."""


def _check_weights(by: str | list[float]) -> None:
    if isinstance(by, list) and (not by or min(by) < 0 or not 0 < max(by) <= MOST):
        raise ValueError(
            f"by: give one number per teacher, none below 0 or above {MOST:,.0f}, and not all 0"
        )


# How likely each teacher is, fixed or learned. A draw is a function of the run's seed and the step alone (and of what
# has been learned by then, which checkpoints carry), so that a resumed run, and every process of a multi-process one,
# draws the same teachers.

# Separates these draws from the draws of mappings and of MixUp.
_STREAM = 0x7EAC


def shares(
    by: str | Sequence[float], scores: Sequence[float | None] | None, count: int
) -> np.ndarray:
    """π: `uniform` (SKDBERT Eq. 1), ranks of `scores` (Eqs. 2 and 3), or numbers made to sum to 1.

    `scores`: the teachers' own for `teacher-rank`, their students' for `student-rank`; 0 to 100.

    Raises:
        LimbeckError: a score is missing or not finite.
    """
    if not isinstance(by, str):
        given = np.asarray(by, dtype=np.float64)
        normed: np.ndarray = given / given.sum()
        return normed
    if by.endswith("-rank"):
        known = [math.nan if score is None else score for score in scores or ()]
        values = torch.tensor(known, dtype=torch.float64)
        return rank_distribution(values).numpy()
    return np.full(count, 1 / count)


def draw(probabilities: np.ndarray, seed: int, step: int) -> int:
    """The teacher of a step: a number from 0, sampled from π."""
    generator = StepState(seed=seed, step=step).step_generator(_STREAM)
    return int(generator.choice(len(probabilities), p=probabilities))


class SamplingProbabilities:
    """A π that stays as it is."""

    def __init__(self, probabilities: Sequence[float] | np.ndarray) -> None:
        self.probabilities = np.asarray(probabilities, dtype=np.float64)

    def pick(self, seed: int, step: int) -> int:
        """The teacher of a step."""
        return draw(self.probabilities, seed, step)


class LearnedProbabilities(nn.Module, ABC):
    """A π that is learned during training, in buffers, so that a checkpoint carries it.

    Its class is built of the number of teachers and, by name, of the settings that a recipe's `team` has for it.
    """

    @property
    @abstractmethod
    def probabilities(self) -> np.ndarray:
        """π as it is now."""

    @abstractmethod
    def pick(self, seed: int, step: int) -> int:
        """The teacher of a step."""

    @abstractmethod
    def reset(self) -> None:
        """Forget everything: a new student begins."""

    @abstractmethod
    def callback(self, trainer: Any, rows: Any) -> Any:
        """A callback of the Trainer's that teaches it, by rows that are not trained on.

        Raises:
            LimbeckError: no rows.
        """


LEARNED: Registry[type[LearnedProbabilities]] = Registry("learned sampling")
"""By the value of `team.by`."""


def learned(by: str, teachers: int, **settings: float) -> LearnedProbabilities:
    """The π of a name, nothing learned yet.

    Raises:
        LimbeckError: nothing installed has it.
    """
    if by not in LEARNED:
        raise LimbeckError(
            f"team.by: {by} is part of limbeck.lab, which is not installed",
            "install all of limbeck, or set team.by=uniform",
        )
    make: Any = LEARNED.get(by)
    found: LearnedProbabilities = make(teachers, **settings)
    return found


# The teams.


class Answering(Protocol):
    """What answers a request about a step's inputs."""

    def __call__(  # noqa: D102
        self, inputs: StepInputs | Mapping[str, Tensor], request: Request
    ) -> Trace: ...


class Team(ABC):
    """Frozen teachers, which may differ in depth, width and heads.

    Attributes:
        members: the teachers.
        names: each member's name in logs and records.
    """

    def __init__(self, members: Sequence[Teacher], names: Sequence[str]) -> None:
        self.members = tuple(members)
        self.names = tuple(names)

    @property
    @abstractmethod
    def shares(self) -> np.ndarray:
        """The expected share of all steps in which each member runs."""

    @property
    @abstractmethod
    def separate(self) -> bool:
        """Whether terms are built for each member, as its layers are looked at alone."""

    @abstractmethod
    def pick(self, seed: int, step: int) -> int:
        """The number of the member whose step it is; 0 of an ensemble."""

    @property
    @abstractmethod
    def weights(self) -> Sequence[float]:
        """How much each member counts: its probability, or its part of a mean."""

    @abstractmethod
    def weighed(self, given: Sequence[float]) -> Self:
        """The same team with these weights."""

    def asks(self, request: Request) -> Request:
        """The request to a member for this request to the team: the same."""
        return request

    @abstractmethod
    def at(self, step_state: StepState) -> Answering:
        """The teacher of a step."""

    def answered_by(self, members: Sequence[Teacher]) -> Self:
        """The same team with other members: teachers that read stored outputs."""
        team = object.__new__(type(self))
        team.__dict__ = self.__dict__ | {"members": tuple(members)}
        return team

    def to(self, device: torch.device | str) -> Self:
        """Move all models. Returns itself."""
        for member in self.members:
            member.to(device)
        return self

    def pack(self) -> Self:
        """Run all passes on batches without padding. Returns itself."""
        for member in self.members:
            member.pack()
        return self

    def compile(self) -> Self:
        """Compile all passes. Returns itself."""
        for member in self.members:
            member.compile()
        return self


class SampledTeam(Team):
    """One member runs in each optimization step, sampled from π (SKDBERT §3.1)."""

    separate = True

    def __init__(
        self,
        members: Sequence[Teacher],
        names: Sequence[str],
        sampling: SamplingProbabilities | LearnedProbabilities,
    ) -> None:
        super().__init__(members, names)
        self.sampling = sampling

    @property
    def shares(self) -> np.ndarray:
        """π."""
        return self.sampling.probabilities

    @property
    def weights(self) -> Sequence[float]:
        """π."""
        return [float(share) for share in self.shares]

    def weighed(self, given: Sequence[float]) -> Self:
        """With these probabilities."""
        return type(self)(self.members, self.names, SamplingProbabilities(given))

    def pick(self, seed: int, step: int) -> int:
        """Sampled from π, the same in every process and after every resume."""
        return self.sampling.pick(seed, step)

    def at(self, step_state: StepState) -> Teacher:
        """The member whose step it is; no other is run."""
        return self.members[step_state.teacher]


class EnsembleTeam(Team):
    """An ensemble: all members run in every step; the logits are their weighted mean (SKDBERT §3.2: WKD).

    Raises:
        LimbeckError: members are embedding models of different widths.
    """

    separate = False

    def __init__(
        self, members: Sequence[Teacher], names: Sequence[str], weights: Sequence[float]
    ) -> None:
        super().__init__(members, names)
        widths = [ModelShape.of(member.model).embedding for member in members]
        if len(set(widths)) > 1:
            said = ", ".join(f"{n} of {width}" for n, width in zip(names, widths, strict=True))
            raise LimbeckError(
                f"teachers: embeddings of different widths have no mean: {said} numbers",
                "sample one teacher for each step: team.use=sample (method skd-uniform)",
            )
        self._weights = [float(weight) for weight in weights]

    @property
    def weights(self) -> Sequence[float]:
        """Those of the mean."""
        return self._weights

    def weighed(self, given: Sequence[float]) -> Self:
        """With these weights."""
        return type(self)(self.members, self.names, given)

    @property
    def shares(self) -> np.ndarray:
        """Every step asks every member."""
        return np.ones(len(self.members))

    def pick(self, seed: int, step: int) -> int:
        """The ensemble is one teacher."""
        return 0

    def at(self, step_state: StepState) -> Answering:
        """The entire team."""
        return self

    def asks(self, request: Request) -> Request:
        """All logits: of parts of them there is no mean."""
        return replace(request, tokens=None)

    def __call__(self, inputs: StepInputs | Mapping[str, Tensor], request: Request) -> Trace:
        """Logits: Σ_n w_n z_n in float32, and in `each` every member's logits, [T, B, …].

        Raises:
            LimbeckError: anything but logits is requested.
        """
        if request.items:
            raise LimbeckError(
                "an ensemble of teachers has no layers in common",
                "request only logits, or sample one teacher per step: team.use=sample",
            )
        request = self.asks(request)
        traces = [member(inputs, request) for member in self.members]
        each = torch.stack([_logits(trace) for trace in traces])
        # Number by number: a tensor of weights would be copied to the device in every step.
        weighted = [weight * one for weight, one in zip(self.weights, each, strict=True)]
        mean = torch.stack(weighted).sum(0)
        return Trace(logits=mean, each=each, masks=traces[0].masks)


def _logits(trace: Trace) -> Tensor:
    assert trace.logits is not None  # requested
    return trace.logits.float()


def members_of(teacher: Any) -> tuple[Teacher, ...]:
    """The teachers behind a teacher or a team; none behind None."""
    return () if teacher is None else teacher.members


# From teachers and how they are to teach to a team.


def form(spec: TeamSpec, members: Sequence[Teacher], names: Sequence[str]) -> Teacher | Team:
    """The teacher or team; if scores decide, all weights are equal for now.

    For a chain it is the smallest teacher, which its distilled form replaces later.
    """
    match spec:
        case SampledSpec(by="adaptive"):
            given = {key: getattr(spec, key) for key in ("block", "explore", "rate")}
            known = {key: value for key, value in given.items() if value is not None}
            return SampledTeam(members, names, learned("adaptive", len(members), **known))
        case SampledSpec():
            return SampledTeam(
                members, names, SamplingProbabilities(_at_first(spec.by, len(members)))
            )
        case EnsembleSpec():
            return EnsembleTeam(members, names, _at_first(spec.by, len(members)))
        case ChainSpec():
            return members[by_capacity(members)[-1]]


def _at_first(by: str | list[float], count: int) -> list[float]:
    return [*map(float, shares("uniform" if isinstance(by, str) else by, None, count))]


def by_capacity(
    members: Sequence[Teacher], scores: Sequence[float | None] | None = None
) -> list[int]:
    """Indices of the teachers from most parameters to fewest.

    Args:
        members: the teachers.
        scores: their dev scores, the higher the better. Among teachers of one size the best is first: a chain
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
