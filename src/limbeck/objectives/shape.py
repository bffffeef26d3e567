"""The facts about a teacher and a student that objectives are built from.

Part of `limbeck.objectives`.
"""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedModel

from limbeck.capture import hidden_size, number_of_heads, number_of_layers


@dataclass(frozen=True)
class ModelShape:
    """Depth, width and attention heads of one model."""

    layers: int
    width: int
    heads: int

    @classmethod
    def of(cls, model: PreTrainedModel) -> ModelShape:
        """Read off a model."""
        return cls(number_of_layers(model), hidden_size(model), number_of_heads(model))


@dataclass(frozen=True)
class Shape:
    """A teacher–student pair and the kind of its task."""

    student: ModelShape
    teacher: ModelShape
    regression: bool = False
