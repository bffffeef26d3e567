"""The labels' own loss: plain, with weights for classes, and focal. Part of `limbeck.objectives`.

What a label is, and over which positions of a batch the term runs, is the task type's to say (`limbeck.tasks`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping as Batch
from typing import Any, Literal

import torch
from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer
from torch import Tensor

from limbeck.activations import Trace
from limbeck.mappings.projections import Projections
from limbeck.objectives.base import Objective, TermSettings
from limbeck.objectives.predictions import present
from limbeck.objectives.registration import objective
from limbeck.objectives.shape import Shape
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.settings import Number
from limbeck.support.step_state import StepState
from limbeck.tasks.rules import HardRule

BALANCED = "balanced"
_SHOWN = 8


class HardSpec(TermSettings):
    """Cross-entropy with the labels; squared error for regression."""

    compare: Literal["hard_label"]
    class_weights: Literal["balanced"] | dict[str, float] | None = Field(
        None,
        description="what the loss of each class is multiplied by: balanced (all classes count alike, by the "
        "training rows), or numbers by name, 1 for a class that is not named; of several labels a row, "
        "of the rows that are of the class",
    )

    @field_validator("class_weights", mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        # YAML reads the names 0 and 1 as numbers.
        return (
            {str(name): value for name, value in given.items()}
            if isinstance(given, dict)
            else given
        )

    @field_validator("class_weights")
    @classmethod
    def _are_weights(cls, given: Any) -> Any:
        if isinstance(given, dict):
            wrong = [name for name, value in given.items() if not 0 <= value < math.inf]
            if wrong:
                raise ValueError(f"{wrong[0]}: {given[wrong[0]]}, and a weight is 0 or more")
        return given

    @model_serializer(mode="wrap")
    def _without_idle_weights(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        if self.class_weights is None:
            written.pop("class_weights", None)  # a dump may leave out what was not set
        return written

    @property
    def counts_classes(self) -> bool:
        """Where all are to count alike."""
        return self.class_weights == BALANCED

    @property
    def focus(self) -> float:
        """The focal loss's γ; 0 for none."""
        return 0.0


@objective("hard_label", settings=HardSpec)
class HardLabel(Objective):
    """Cross-entropy with the labels, or squared error for regression (in every paper, L_CE)."""

    needs_teacher = False
    reads_labels = True
    counts_labelled = True
    mixes_labels = True
    settings: HardSpec
    class_weights: Tensor | None

    def __init__(
        self, settings: HardSpec, shape: Shape, setting: str, maps: Projections | None = None
    ) -> None:
        super().__init__(settings, shape, setting, maps)
        weights = None
        if settings.class_weights is not None or settings.focus:
            _need_weighed_classes(shape, setting, settings)
        if settings.class_weights is not None:
            weights = _weights(settings.class_weights, shape, f"{setting}.class_weights")
        # Checkpoints need not hold what the rows and the recipe say.
        self.register_buffer("class_weights", weights, persistent=False)

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, …) against the batch's labels.

        Of mixed input against both examples' labels, by their shares: λ·CE(z, y_i) + (1 − λ)·CE(z, y_j)
        (Zhang et al. 2018, mixup).
        """
        logits, mixed = present(student.logits), student.mixed
        own = self._loss(logits, batch)
        if mixed is None:
            return own
        names = self.shape.kind.label_names
        theirs = {name: batch[name][mixed.partner] for name in names if name in batch}
        partners = self._loss(logits, {**batch, **theirs})
        return mixed.share * own + (1 - mixed.share) * partners

    def _loss(self, logits: Tensor, batch: Batch[str, Tensor]) -> Tensor:
        kind, gamma = self.shape.kind, self.settings.focus
        if self.class_weights is None and not gamma:
            return kind.hard_label(logits, batch)
        return kind.hard_label(logits, batch, HardRule(self.class_weights, gamma))

    def weights_by_class(self) -> dict[str, float] | None:
        """As they are set, or as the rows came to."""
        if self.class_weights is None:
            return None
        return dict(zip(self.shape.classes, self.class_weights.tolist(), strict=True))

    def remarks(self) -> list[Problem]:
        """A note of the weights that the rows came to."""
        found = self.weights_by_class()
        if not self.settings.counts_classes or found is None:
            return []
        pairs = list(found.items())
        said = ", ".join(f"{name} {weight:.3g}" for name, weight in pairs[:_SHOWN])
        more = f" and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else ""
        fix = f"{self.setting}.class_weights={{NAME: WEIGHT}} sets others"
        return [Problem(f"{self.setting}.class_weights: balanced: {said}{more}", fix, "note")]


class FocalSpec(HardSpec):
    """Cross-entropy with the labels in which an example counts less the surer the student is of it."""

    compare: Literal["focal"]  # type: ignore[assignment]
    gamma: Number = Field(
        2.0, ge=0, description="how much less: (1 − p)^gamma for the label's probability p"
    )

    @property
    def focus(self) -> float:
        """γ as it is set."""
        return self.gamma


@objective("focal", settings=FocalSpec)
class FocalLabel(HardLabel):
    """The focal loss of the labels (Lin et al. 2017), over softmax's classes or over each class by itself."""


def _need_weighed_classes(shape: Shape, setting: str, settings: HardSpec) -> None:
    """Raise LimbeckError where there are no classes to weigh, or nothing to be sure of."""
    is_number = shape.kind.classes_of_examples and shape.student.labels == 1
    if shape.kind.weighs_classes and not is_number:
        return
    what = "focal" if settings.focus else "class_weights"
    found = "a regression" if is_number else f"task type {shape.kind.name}"
    raise LimbeckError(
        f"{setting}: {what} is for classes, and this is {found}",
        f"use compare: hard_label{' without class_weights' if what == 'class_weights' else ''}",
    )


def _weights(given: str | dict[str, float], shape: Shape, setting: str) -> Tensor:
    """Of each of the student's classes, in id order (C,).

    Raises:
        LimbeckError: a class that there is not, or rows that nobody knows.
    """
    if isinstance(given, str):
        if shape.balanced is None:
            raise LimbeckError(
                f"{setting}: balanced counts the classes of the training rows, and they cannot be counted",
                f"give rows that hold labels, or numbers: {setting}={{NAME: WEIGHT}}",
            )
        return shape.balanced
    strange = [
        unknown("class", name, list(shape.classes)) for name in given if name not in shape.classes
    ]
    if strange:
        raise LimbeckError(Problem(f"{setting}: {one.message}", one.fix) for one in strange)
    weights = [given.get(name, 1.0) for name in shape.classes]
    if not any(weights):
        raise LimbeckError(f"{setting}: every class weighs 0", "give at least one class a weight")
    return torch.tensor(weights)
