"""What every comparison of mapped layers has in common: read, map, combine, compare, add up.

Part of `limbeck.objectives`. A subclass says what it sees of a layer and how two such things are
compared; which layers meet, and how several teacher layers become one target, is the mapping's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping as Batch
from typing import NamedTuple

import torch
from torch import Tensor

from limbeck.capture import Request, Seen, Trace
from limbeck.errors import LimbeckError
from limbeck.mapping import (
    Mapping,
    TransportMapping,
    build_mapping,
    concatenation,
    pairs,
    weighted_sum,
)
from limbeck.moment import Moment
from limbeck.objectives.base import Objective
from limbeck.objectives.reading import Reader
from limbeck.objectives.shape import Shape
from limbeck.objectives.spec import MappedSpec


class Masks(NamedTuple):
    """Which positions count, (B, N) true for real tokens: of the queries, and of the keys."""

    tokens: Tensor
    keys: Tensor


class MappedTerm(Objective):
    """Layers of both sides that a mapping brings together.

    Raises:
        LimbeckError: the mapping or the stack does not fit the models.
    """

    # The lowest layer that has what the term sees; 0 is the embedding output.
    lowest_layer = 0

    def __init__(self, spec: MappedSpec, shape: Shape, setting: str) -> None:
        super().__init__()
        self.stack = spec.stack
        self.spec: MappedSpec = spec
        self.setting = setting
        self.student_shape = shape.student.stack(spec.stack, setting, "student")
        self.teacher_shape = shape.teacher.stack(spec.stack, setting, "teacher")
        self.mapping: Mapping = build_mapping(
            spec.mapping,
            teacher_depth=self.teacher_shape.layers,
            student_depth=self.student_shape.layers,
            setting=f"{setting}.mapping",
        )
        if min(*self.mapping.slots, *self.mapping.candidates) < self.lowest_layer:
            raise LimbeckError(
                f"{setting}.mapping: layer 0 is the embedding output, and has no attention",
                "map layers from 1 on",
            )
        self.reader = None
        if spec.mapping.read is not None:
            self.reader = Reader(
                spec.mapping.read,
                "decoder" if spec.stack == "cross" else spec.stack,
                self.student_shape.width,
                self.teacher_shape.width,
            )

    # ---- what a subclass says ----

    @abstractmethod
    def seen(self, layer: int) -> Seen:
        """What is looked at of a layer, on both sides."""

    def read(self, trace: Trace, layer: int) -> Tensor:
        """The representation that is mixed and compared."""
        return trace[self.seen(layer)]

    @abstractmethod
    def distance(self, state: Tensor, target: Tensor, masks: Masks) -> Tensor:
        """Two representations compared, a scalar."""

    def compare(
        self, states: dict[int, Tensor], targets: dict[int, Tensor], masks: Masks
    ) -> Tensor:
        """By student layer its state and its target; the distances, (S)."""
        found = [self.distance(states[layer], targets[layer], masks) for layer in states]
        return torch.stack(found)

    @property
    def together(self) -> bool:
        """Whether all its layers meet at once, so that none can learn before another."""
        return False

    def shared_map(self, side: str, hidden: Tensor) -> Tensor:
        """A map that serves all layers of a side, applied before they are mixed; none here."""
        return hidden

    # ---- what they have in common ----

    def _mapping_at(self, moment: Moment) -> Mapping:
        return self.mapping if moment.layers is None else self.mapping.only(moment.layers)

    def request(self, side: str, moment: Moment) -> Request:
        """The mapped layers, as the term sees them, and what an attention mapping reads."""
        mapping = self._mapping_at(moment)
        if side not in ("student", "teacher"):
            return Request()
        layers = mapping.slots if side == "student" else mapping.active(moment)
        asked = Request(frozenset(self.seen(layer) for layer in layers))
        return asked if self.reader is None else asked | self.reader.request(layers)

    def active_layers(self, moment: Moment) -> list[list[int]]:
        """[student layer, teacher layer] pairs that may meet at `moment`."""
        mapping = self._mapping_at(moment)
        rows = mapping.rows(moment)
        return [[j, k] for j, row in zip(mapping.slots, rows, strict=True) for k in row]

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], moment: Moment
    ) -> Tensor:
        """The sum, or mean, of the mapped layers' distances."""
        mapping = self._mapping_at(moment)
        masks = self._masks(student)
        states = {j: self.shared_map("student", self.read(student, j)) for j in mapping.slots}
        layers = {
            k: self.shared_map("teacher", self.read(teacher, k)) for k in mapping.active(moment)
        }
        if isinstance(mapping, TransportMapping):
            distances = self._transported(mapping, states, layers, masks)
        elif self.spec.mapping.combine == "costs":
            distances = self._costs(mapping, states, layers, masks, moment)
        else:
            targets = self._targets(mapping, states, layers, (student, teacher), moment)
            distances = self.compare(states, targets, masks)
        return distances.mean() if self.spec.pairs == "mean" else distances.sum()

    def _masks(self, student: Trace) -> Masks:
        if self.stack == "cross":
            return Masks(student.mask("decoder"), student.mask("cross"))
        return Masks(student.mask(self.stack), student.mask(self.stack))

    def _targets(
        self,
        mapping: Mapping,
        states: dict[int, Tensor],
        layers: dict[int, Tensor],
        traces: tuple[Trace, Trace],
        moment: Moment,
    ) -> dict[int, Tensor]:
        """By student layer what its teacher layers come to."""
        if self.reader is None:
            weights = mapping.weights(moment, list(states.values()), layers)
        else:
            student = [self.reader.read("student", traces[0], j) for j in mapping.slots]
            teacher = {k: self.reader.read("teacher", traces[1], k) for k in layers}
            weights = mapping.weights(moment, student, teacher)
        if self.spec.mapping.combine == "concat":
            assert not isinstance(weights, Tensor)  # MappingSpec refuses attention with concat
            mixed = concatenation(weights, layers)
        else:
            mixed = weighted_sum(weights, layers)
        return dict(zip(mapping.slots, mixed, strict=True))

    def _costs(
        self,
        mapping: Mapping,
        states: dict[int, Tensor],
        layers: dict[int, Tensor],
        masks: Masks,
        moment: Moment,
    ) -> Tensor:
        """Per slot Σ_k w_jk · distance(h_S^j, h_T^k): comparisons are weighted, not layers."""
        weights = mapping.weights(moment, list(states.values()), layers)
        assert not isinstance(weights, Tensor)  # MappingSpec refuses attention with costs
        totals: dict[int, list[Tensor]] = {j: [] for j in mapping.slots}
        for number, layer, weight in pairs(weights):
            slot = mapping.slots[number]
            cost = self.compare({slot: states[slot]}, {slot: layers[layer]}, masks)
            totals[slot].append(weight * cost.squeeze(0))
        return torch.stack([torch.stack(row).sum() for row in totals.values()])

    def _transported(
        self,
        mapping: TransportMapping,
        states: dict[int, Tensor],
        layers: dict[int, Tensor],
        masks: Masks,
    ) -> Tensor:
        """Per slot Σ_k f_jk · distance(h_S^j, h_T^k), f the flow of least total cost."""
        costs = torch.stack(
            [
                torch.stack([self.distance(state, target, masks) for target in layers.values()])
                for state in states.values()
            ]
        )
        return (mapping.flow(costs) * costs).sum(1)
