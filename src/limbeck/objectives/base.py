"""What a term of the loss is: it states what it needs of both models, and returns one scalar.

Part of `limbeck.objectives`. Thin wiring: the mathematics is in `limbeck.functional`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping as Batch

from torch import Tensor, nn

from limbeck.capture import Request, Trace
from limbeck.moment import Moment

NOTHING = Request()


class Objective(nn.Module, ABC):
    """One named term."""

    @abstractmethod
    def request(self, side: str, moment: Moment) -> Request:
        """What this term needs of the `student` or the `teacher` at `moment`."""

    @abstractmethod
    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], moment: Moment
    ) -> Tensor:
        """The term's value, a float32 scalar."""

    def active_layers(self, moment: Moment) -> list[list[int]] | None:
        """[student layer, teacher layer] pairs at work, for the record; None without layers."""
        return None
