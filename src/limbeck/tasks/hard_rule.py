"""How a task type is to weigh the loss of labels. Part of `limbeck.tasks`."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class HardRule(NamedTuple):
    """How much each class counts (C,), None for all alike; and the focal loss's γ, 0 for plain labels."""

    class_weights: Tensor | None = None
    gamma: float = 0.0


PLAIN = HardRule()
