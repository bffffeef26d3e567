"""The facts about a teacher and a student that objectives are built from.

Part of `limbeck.objectives`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import (
    hidden_size,
    is_causal,
    number_of_heads,
    number_of_layers,
    stack_names,
)
from limbeck.embedding import SentenceEmbedder
from limbeck.support.errors import LimbeckError, unknown
from limbeck.tasks import SENTENCE, TaskType


@runtime_checkable
class StatesItsShape(Protocol):
    """A model that is not there to be looked at, and says what it was."""

    @property
    def stated_shape(self) -> ModelShape:
        """Its depth, width and heads."""
        ...


@dataclass(frozen=True)
class ModelShape:
    """Depth, width and attention heads of one model's main stack, and of each by name.

    All 0 of a network that has no layers over tokens, such as a convolutional one. `labels`: how many
    its classifier has. `embedding`: numbers of a sentence embedding.
    """

    layers: int
    width: int
    heads: int
    causal: bool = False
    stacks: Mapping[str, ModelShape] = field(default_factory=dict)
    labels: int = 0
    embedding: int = 0

    @property
    def outputs(self) -> int:
        """Numbers that its head puts out for an example: of its embedding, else as many as there are labels."""
        return self.embedding or self.labels

    @classmethod
    def of(cls, model: PreTrainedModel) -> ModelShape:
        """Read off a model."""
        if isinstance(model, StatesItsShape):
            return replace(model.stated_shape, labels=model.config.num_labels or 0)
        stacks = {name: cls._stack_of(model, name) for name in stack_names(model)}
        main = stacks.get("main", cls(0, 0, 0))
        width = model.embedding_width if isinstance(model, SentenceEmbedder) else 0
        return replace(main, stacks=stacks, labels=model.config.num_labels or 0, embedding=width)

    @classmethod
    def _stack_of(cls, model: PreTrainedModel, name: str) -> ModelShape:
        return cls(
            number_of_layers(model, name),
            hidden_size(model, name),
            number_of_heads(model, name),
            is_causal(model, name),
        )

    def written(self) -> dict[str, Any]:
        """As JSON can keep it."""
        return asdict(self)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> ModelShape:
        """From what `written` gave.

        Raises:
            TypeError: it is something else.
        """
        stacks = {name: cls.read(stack) for name, stack in content.get("stacks", {}).items()}
        return cls(**{**content, "stacks": stacks})

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

    `rows` bounds the `index` of the training examples from above; 0 where it is not known. `classes` are the
    names of the student's outputs in id order, and `balanced` the weights (C,) by which its classes count alike
    in the training rows, where a term asks for them.
    """

    student: ModelShape
    teacher: ModelShape
    kind: TaskType = SENTENCE
    rows: int = 0
    classes: tuple[str, ...] = ()
    balanced: Tensor | None = None
