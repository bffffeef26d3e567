"""Optimal transport between layers: the flow of least cost, with fixed or learned layer masses.

Part of `limbeck.mappings`. Reads the pairwise costs of a batch (EMD-ILD in CR-ILD; BERT-EMD).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from limbeck.functional import cheaper_layers_weigh_more, transport_flow
from limbeck.mappings.maps import Mapping
from limbeck.support.errors import LimbeckError
from limbeck.support.step_state import StepState


class TransportMapping(nn.Module, Mapping):
    """Every student layer may learn from every teacher layer, as much as the best flow says.

    Args:
        student_layers: the student's layers; their masses start equal and sum to 1.
        candidates: the teacher's layers, with masses of the same sum.
        learned: after each step a layer's mass is set to the inverse of its cost in the last flow
            (`cheaper_layers_weigh_more`), as in BERT-EMD. Masses are saved in checkpoints.
    """

    student_mass: Tensor
    teacher_mass: Tensor

    def __init__(
        self, student_layers: tuple[int, ...], candidates: tuple[int, ...], *, learned: bool
    ) -> None:
        super().__init__()
        self.student_layers = student_layers
        self.candidates = candidates
        self.learned = learned
        self.register_buffer(
            "student_mass", torch.full((len(student_layers),), 1 / len(student_layers))
        )
        self.register_buffer("teacher_mass", torch.full((len(candidates),), 1 / len(candidates)))
        self.moved: Tensor | None = None

    def rows(self, step_state: StepState) -> tuple[tuple[int, ...], ...]:
        """Every candidate for every student layer."""
        return (self.candidates,) * len(self.student_layers)

    def only(self, layers: tuple[int, ...]) -> TransportMapping:
        """Never: what one layer gets depends on all the others.

        Raises:
            LimbeckError: always.
        """
        raise LimbeckError(
            "kind: transport shares the teacher among all student layers at once, so they cannot "
            "learn one after the other",
            "leave `curriculum` out, or use a fixed map",
        )

    def flow(self, costs: Tensor) -> Tensor:
        """(S, T) the flow of least cost for pairwise costs (S, T); a constant without gradient."""
        costs = costs.detach()
        flow = transport_flow(costs, self.student_mass, self.teacher_mass)
        if self.learned and self.training:
            moved = flow * costs
            self.moved = moved if self.moved is None else self.moved + moved
        return flow

    def new_masses(self) -> tuple[Tensor, Tensor] | None:
        """The masses that follow from the costs moved since the last step; None if none were."""
        if self.moved is None:
            return None
        moved, self.moved = self.moved, None
        return (
            cheaper_layers_weigh_more(moved.sum(1), self.student_mass),
            cheaper_layers_weigh_more(moved.sum(0), self.teacher_mass),
        )

    def set_masses(self, student: Tensor, teacher: Tensor) -> None:
        """Weigh the layers again."""
        self.student_mass.copy_(student)
        self.teacher_mass.copy_(teacher)

    @classmethod
    def learn(cls, mappings: Sequence[TransportMapping]) -> None:
        """Every mapping's masses again, the mean of those alike in layers.

        BERT-EMD averages the weights of its hidden and its attention flow.
        """
        found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[TransportMapping]] = {}
        for mapping in mappings:
            if mapping.learned:
                found.setdefault((mapping.student_layers, mapping.candidates), []).append(mapping)
        for group in found.values():
            masses = [masses for mapping in group if (masses := mapping.new_masses()) is not None]
            if masses:
                student = torch.stack([student for student, _ in masses]).mean(0)
                teacher = torch.stack([teacher for _, teacher in masses]).mean(0)
                for mapping in group:
                    mapping.set_masses(student, teacher)
