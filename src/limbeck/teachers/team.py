"""Several teachers in one teacher's place. Part of `limbeck.teachers`.

A team says which teacher runs in a step (`at`); what it returns is called as a `Teacher` is. A `Teacher` is
a team of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from limbeck.activations import Request, Trace
from limbeck.input_transforms.step_inputs import StepInputs
from limbeck.objectives.shape import ModelShape
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState
from limbeck.teachers.bandit import Bandit
from limbeck.teachers.sampling import SamplingProbabilities
from limbeck.teachers.teacher import Teacher


class Answering(Protocol):
    """What answers a request about a step's inputs."""

    def __call__(  # noqa: D102
        self, inputs: StepInputs | Mapping[str, Tensor], request: Request
    ) -> Trace: ...


class Team(ABC):
    """Frozen teachers, which may differ in depth, width and heads.

    Attributes:
        members: the teachers.
        names: what each is called in logs and records.
    """

    def __init__(self, members: Sequence[Teacher], names: Sequence[str]) -> None:
        self.members = tuple(members)
        self.names = tuple(names)

    @property
    @abstractmethod
    def shares(self) -> np.ndarray:
        """The part of all steps for which each member is asked, as it is expected now."""

    @property
    @abstractmethod
    def separate(self) -> bool:
        """Whether terms are built for each member, as its layers are looked at alone."""

    @abstractmethod
    def pick(self, seed: int, step: int) -> int:
        """The number of the member whose step it is; 0 of an ensemble."""

    def asks(self, request: Request) -> Request:
        """What a member is asked where this is asked of the team: the same."""
        return request

    @abstractmethod
    def at(self, step_state: StepState) -> Answering:
        """The teacher of a step."""

    def answered_by(self, members: Sequence[Teacher]) -> Self:
        """The same team with others in its members' places: those that read stored outputs."""
        team = object.__new__(type(self))
        team.__dict__ = self.__dict__ | {"members": tuple(members)}
        return team

    def to(self, device: torch.device | str) -> Self:
        """Move all models. Returns itself."""
        for member in self.members:
            member.to(device)
        return self

    def compile(self) -> Self:
        """Compile all passes. Returns itself."""
        for member in self.members:
            member.compile()
        return self


class SampledTeam(Team):
    """One member runs in each optimisation step, sampled from π (SKDBERT §3.1)."""

    separate = True

    def __init__(
        self,
        members: Sequence[Teacher],
        names: Sequence[str],
        sampling: SamplingProbabilities | Bandit,
    ) -> None:
        super().__init__(members, names)
        self.sampling = sampling

    @property
    def shares(self) -> np.ndarray:
        """π."""
        return self.sampling.probabilities

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
        self.weights = [float(weight) for weight in weights]

    @property
    def shares(self) -> np.ndarray:
        """Every step asks every member."""
        return np.ones(len(self.members))

    def pick(self, seed: int, step: int) -> int:
        """The ensemble is one teacher."""
        return 0

    def at(self, step_state: StepState) -> Answering:
        """The whole team."""
        return self

    def asks(self, request: Request) -> Request:
        """All logits: of parts of them there is no mean."""
        return replace(request, tokens=None)

    def __call__(self, inputs: StepInputs | Mapping[str, Tensor], request: Request) -> Trace:
        """Logits: Σ_n w_n z_n in float32, and in `each` those of every member, [T, B, …].

        Raises:
            LimbeckError: anything but logits is asked for.
        """
        if request.items:
            raise LimbeckError(
                "an ensemble of teachers has no layers in common",
                "ask for logits only, or sample one teacher for each step: team.use=sample",
            )
        request = self.asks(request)
        traces = [member(inputs, request) for member in self.members]
        each = torch.stack([_logits(trace) for trace in traces])
        # Number by number: a tensor of weights would be copied to the device in every step.
        weighted = [weight * one for weight, one in zip(self.weights, each, strict=True)]
        mean = torch.stack(weighted).sum(0)
        return Trace(logits=mean, each=each, masks=traces[0].masks)


def _logits(trace: Trace) -> Tensor:
    assert trace.logits is not None  # asked for
    return trace.logits.float()


def members_of(teacher: Any) -> tuple[Teacher, ...]:
    """The teachers behind a teacher or a team; none behind None."""
    return () if teacher is None else teacher.members
