"""What every term over mapped layers has in common: what it asks for, reads, and mixes into targets.

Part of `limbeck.objectives`. A subclass says what it sees of a layer and what it makes of states
and targets; which layers meet, and how several teacher layers become one target, is the mapping's.
"""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from limbeck.activations import ActivationKey, Request, Trace
from limbeck.errors import LimbeckError
from limbeck.mappings import Mapping, build_mapping, concatenation, weighted_sum
from limbeck.objectives.attended import Reader
from limbeck.objectives.base import Objective
from limbeck.objectives.shape import Shape
from limbeck.objectives.spec import MappedSpec
from limbeck.step_state import StepState


class Mapped(Objective):
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
        if min(*self.mapping.student_layers, *self.mapping.candidates) < self.lowest_layer:
            raise LimbeckError(
                f"{setting}.mapping: layer 0 is the embedding output, and has no attention",
                "map layers from 1 on",
            )
        self.reader = None
        vectors = spec.mapping.sentence_vectors
        if vectors is not None:
            self.reader = Reader(
                vectors,
                "decoder" if spec.stack == "cross" else spec.stack,
                self.student_shape.width,
                self.teacher_shape.width,
            )

    # ---- what a subclass says ----

    @abstractmethod
    def seen(self, layer: int) -> ActivationKey:
        """What is looked at of a layer, on both sides."""

    def takes(self, layer: int) -> tuple[ActivationKey, ...]:
        """All that `read` takes of a layer: what is seen, unless a term reads several things."""
        return (self.seen(layer),)

    def read(self, trace: Trace, layer: int) -> Tensor:
        """The representation that is mixed into targets."""
        return trace[self.seen(layer)]

    @property
    def together(self) -> bool:
        """Whether all its layers meet at once, so that none can learn before another."""
        return False

    # ---- what they have in common ----

    def _mapping_at(self, step_state: StepState) -> Mapping:
        return self.mapping if step_state.layers is None else self.mapping.only(step_state.layers)

    def request(self, side: str, step_state: StepState) -> Request:
        """The mapped layers, as the term sees them, and what an attention mapping reads."""
        mapping = self._mapping_at(step_state)
        if side not in ("student", "teacher"):
            return Request()
        return self._asked(
            mapping.student_layers if side == "student" else mapping.active(step_state)
        )

    def ever(self, side: str) -> Request:
        """Every layer that a draw or a curriculum may come to."""
        if side not in ("student", "teacher"):
            return Request()
        return self._asked(
            self.mapping.student_layers if side == "student" else self.mapping.candidates
        )

    def _asked(self, layers: tuple[int, ...]) -> Request:
        asked = Request(frozenset(seen for layer in layers for seen in self.takes(layer)))
        return asked if self.reader is None else asked | self.reader.request(layers)

    def active_layers(self, step_state: StepState) -> list[list[int]]:
        """[student layer, teacher layer] pairs that may meet at `step_state`."""
        mapping = self._mapping_at(step_state)
        rows = mapping.rows(step_state)
        return [[j, k] for j, row in zip(mapping.student_layers, rows, strict=True) for k in row]

    def _targets(
        self,
        mapping: Mapping,
        states: dict[int, Tensor],
        layers: dict[int, Tensor],
        traces: tuple[Trace, Trace],
        step_state: StepState,
    ) -> dict[int, Tensor]:
        """By student layer what its teacher layers come to."""
        if self.reader is None:
            weights = mapping.weights(step_state, list(states.values()), layers)
        else:
            student = [self.reader.read("student", traces[0], j) for j in mapping.student_layers]
            teacher = {k: self.reader.read("teacher", traces[1], k) for k in layers}
            weights = mapping.weights(step_state, student, teacher)
        if self.spec.mapping.combine == "concat":
            assert not isinstance(
                weights, Tensor
            )  # one weight for all examples, or `combine` is sum
            mixed = concatenation(weights, layers)
        else:
            mixed = weighted_sum(weights, layers)
        return dict(zip(mapping.student_layers, mixed, strict=True))
