"""What a term of the loss is: it states what it needs of both models, and returns one scalar.

Part of `limbeck.objectives`. Thin wiring: the mathematics is in `limbeck.functional`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping as Batch

from torch import Tensor, nn

from limbeck.activations import Request, Trace
from limbeck.step_state import StepState

NOTHING = Request()


class Objective(nn.Module, ABC):
    """One named term."""

    @property
    def sees_padding(self) -> bool:
        """Whether what stands at padding counts, as it does in some releases."""
        return False

    @property
    def sees_differences(self) -> bool:
        """Whether it looks at differences of nearly equal states, where float16 has no digits."""
        return False

    @abstractmethod
    def request(self, side: str, step_state: StepState) -> Request:
        """What this term needs of the `student` or the `teacher` at `step_state`."""

    def ever(self, side: str) -> Request:
        """What this term may need of one side at any moment of a run."""
        return self.request(side, StepState(seed=0))

    @abstractmethod
    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """The term's value, a float32 scalar."""

    def active_layers(self, step_state: StepState) -> list[list[int]] | None:
        """[student layer, teacher layer] pairs at work, for the record; None without layers."""
        return None
