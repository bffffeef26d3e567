"""The facts about a teacher and a student that objectives are built from.

Part of `limbeck.objectives`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from transformers import PreTrainedModel

from limbeck.activations import (
    hidden_size,
    is_causal,
    number_of_heads,
    number_of_layers,
    stack_names,
)
from limbeck.errors import LimbeckError, unknown
from limbeck.tasks import SENTENCE, TaskType


@dataclass(frozen=True)
class ModelShape:
    """Depth, width and attention heads of one model's main stack, and of each by name.

    All 0 of a network that has no layers over tokens, such as a convolutional one. `labels`: how many
    its classifier has.
    """

    layers: int
    width: int
    heads: int
    causal: bool = False
    stacks: Mapping[str, ModelShape] = field(default_factory=dict)
    labels: int = 0

    @classmethod
    def of(cls, model: PreTrainedModel) -> ModelShape:
        """Read off a model."""
        stacks = {name: cls._stack_of(model, name) for name in stack_names(model)}
        main = stacks.get("main", cls(0, 0, 0))
        return replace(main, stacks=stacks, labels=model.config.num_labels or 0)

    @classmethod
    def _stack_of(cls, model: PreTrainedModel, name: str) -> ModelShape:
        return cls(
            number_of_layers(model, name),
            hidden_size(model, name),
            number_of_heads(model, name),
            is_causal(model, name),
        )

    def stack(self, name: str, setting: str, side: str) -> ModelShape:
        """One stack's facts.

        Raises:
            LimbeckError: the model has no such stack.
        """
        if name == "main":
            return self
        if name not in self.stacks:
            raise LimbeckError(
                unknown(f"{setting}.stack of the {side}", name, list(self.stacks) or ["main"])
            )
        return self.stacks[name]


@dataclass(frozen=True)
class Shape:
    """A teacher–student pair and the kind of its task.

    `rows` bounds the `index` of the training examples from above; 0 where it is not known.
    """

    student: ModelShape
    teacher: ModelShape
    kind: TaskType = SENTENCE
    rows: int = 0
