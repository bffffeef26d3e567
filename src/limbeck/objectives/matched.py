"""Mapped layers compared pair by pair: a distance each, weighed as the mapping says, and added up.

Part of `limbeck.objectives`. A subclass says what it sees of a layer and how two such things are
compared.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping as Batch
from typing import NamedTuple

import torch
from torch import Tensor

from limbeck.activations import Trace
from limbeck.mappings import Mapping, pairs
from limbeck.objectives.mapped import Mapped
from limbeck.support.step_state import StepState


class Masks(NamedTuple):
    """Which positions count, (B, N) true for real tokens: of the queries, and of the keys.

    `causal`: a query sees no later key.
    """

    tokens: Tensor
    keys: Tensor
    causal: bool = False


class MappedTerm(Mapped):
    """Layers of both sides that a mapping brings together and a distance compares."""

    @abstractmethod
    def distance(self, state: Tensor, target: Tensor, masks: Masks) -> Tensor:
        """Two representations compared, a scalar."""

    def compare(
        self, states: dict[int, Tensor], targets: dict[int, Tensor], masks: Masks
    ) -> Tensor:
        """By student layer its state and its target; the distances, (S)."""
        found = [self.distance(states[layer], targets[layer], masks) for layer in states]
        return torch.stack(found)

    def shared_map(self, side: str, hidden: Tensor) -> Tensor:
        """A map that serves all layers of a side, applied before they are mixed; none here."""
        return hidden

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """The sum, or mean, of the mapped layers' distances."""
        mapping = self._mapping_at(step_state)
        masks = self.masks(student)
        states, layers = self._read(mapping, student, teacher, step_state)
        if self.settings.mapping.reads_costs:
            distances = self._transported(mapping, states, layers, masks)
        elif self.settings.mapping.combine == "costs":
            distances = self._costs(mapping, states, layers, masks, step_state)
        else:
            targets = self._targets(mapping, states, layers, (student, teacher), step_state)
            distances = self.compare(states, targets, masks)
        return distances.mean() if self.settings.pairs == "mean" else distances.sum()

    def layer_weights(
        self, student: Trace, teacher: Trace, step_state: StepState
    ) -> tuple[dict[int, float], ...] | Tensor:
        """What `forward` weighs the teacher layers by: as `Mapping.weights` gives it."""
        mapping = self._mapping_at(step_state)
        states, layers = self._read(mapping, student, teacher, step_state)
        return self._weights(mapping, states, layers, (student, teacher), step_state)

    def _read(
        self, mapping: Mapping, student: Trace, teacher: Trace, step_state: StepState
    ) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """What is compared of each student layer, and of each teacher layer that is active."""
        states = {
            j: self.shared_map("student", self.read(student, j)) for j in mapping.student_layers
        }
        layers = {
            k: self.shared_map("teacher", self.read(teacher, k)) for k in mapping.active(step_state)
        }
        return states, layers

    def masks(self, student: Trace) -> Masks:
        """Which queries and which keys count."""
        if self.stack == "cross":
            return Masks(student.mask("decoder"), student.mask("cross"))
        return Masks(student.mask(self.stack), student.mask(self.stack))

    def _costs(
        self,
        mapping: Mapping,
        states: dict[int, Tensor],
        layers: dict[int, Tensor],
        masks: Masks,
        step_state: StepState,
    ) -> Tensor:
        """Per student layer Σ_k w_jk · distance(h_S^j, h_T^k): comparisons are weighted, not layers."""
        weights = mapping.weights(step_state, list(states.values()), layers)
        assert not isinstance(weights, Tensor)  # one weight for all examples, or `combine` is sum
        totals: dict[int, list[Tensor]] = {j: [] for j in mapping.student_layers}
        for number, layer, weight in pairs(weights):
            student_layer = mapping.student_layers[number]
            cost = self.compare(
                {student_layer: states[student_layer]}, {student_layer: layers[layer]}, masks
            )
            totals[student_layer].append(weight * cost.squeeze(0))
        return torch.stack([torch.stack(row).sum() for row in totals.values()])

    def _transported(
        self,
        mapping: Mapping,
        states: dict[int, Tensor],
        layers: dict[int, Tensor],
        masks: Masks,
    ) -> Tensor:
        """Per student layer Σ_k f_jk · distance(h_S^j, h_T^k), f the flow of least total cost."""
        costs = torch.stack(
            [
                torch.stack([self.distance(state, target, masks) for target in layers.values()])
                for state in states.values()
            ]
        )
        return (mapping.flow(costs) * costs).sum(1)
