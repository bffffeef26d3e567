"""The prediction-layer term of a teacher: its soft label. Part of `limbeck.objectives`.

Over which positions of a batch it runs is the task type's to say (`limbeck.tasks`).
"""

from __future__ import annotations

from collections.abc import Mapping as Batch
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import Request, Trace
from limbeck.functional.partial_logits import KeptTokens
from limbeck.objectives.base import NOTHING, Objective, TermSettings
from limbeck.objectives.registration import objective
from limbeck.objectives.shape import Shape
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.machine import on_host
from limbeck.support.settings import Temperature
from limbeck.support.step_state import StepState
from limbeck.tasks import SoftRule


class SoftSpec(TermSettings):
    """The teacher's output distribution; squared error of the outputs for regression."""

    compare: Literal["soft_cross_entropy", "soft_kl"]
    temperature: Temperature = Field(1.0, description="divides both sides' logits")
    scale_by_t2: bool = Field(False, description="multiply by the squared temperature")
    mean_over: Literal["batch", "batch_and_classes"] = Field(
        "batch",
        description="also divide by the number of classes, as some releases do, where that is not done "
        "already (several labels a row)",
    )
    regression: Literal["teacher", "tempered", "labels"] = Field(
        "teacher",
        description="what a number is learned from: the teacher's; tempered: both sides' divided by "
        "the temperature (CR-ILD's release); labels: not the teacher at all (TinyBERT's release)",
    )

    standardize: bool = Field(
        False,
        description="z-scores of both sides' logits first, by example, over a vocabulary by token (Sun et al. 2024)",
    )

    tokens: str | None = Field(
        None,
        description="of logits over a vocabulary what is looked at, and stored: topK, the K likeliest tokens and all "
        "others as one more outcome, or sampleN, N sampled ones; all if left out",
    )

    @field_validator("tokens")
    @classmethod
    def _is_known(cls, word: str | None) -> str | None:
        if word is not None and "@" in word:
            raise ValueError(f"{word!r}: the temperature is the term's own")
        try:
            _ = word and KeptTokens.parse(word)
        except LimbeckError as error:
            raise ValueError(f"{word!r}; {error.problems[0].fix}") from None
        return word

    @model_serializer(mode="wrap")
    def _without_idle_keys(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        for key in ("standardize", "tokens"):
            if not getattr(self, key):
                written.pop(key, None)  # a dump may leave out what was not set
        return written

    @property
    def kept(self) -> KeptTokens | None:
        """What is looked at of a vocabulary; None for all."""
        return None if self.tokens is None else KeptTokens.parse(self.tokens, self.temperature)

    @property
    def reads_numbers(self) -> bool:
        """Where a release learns from the labels of a regression."""
        return self.regression == "labels"


@objective("soft_cross_entropy", "soft_kl", settings=SoftSpec)
class SoftLabel(Objective):
    """The teacher's outputs as targets (Hinton et al.): soft cross-entropy or KL.

    Squared error of the outputs for regression, or whatever the recipe's `regression` says.
    """

    weighs_examples = True
    counts_labelled = True  # where the labels of a regression are the target
    settings: SoftSpec

    def __init__(self, settings: SoftSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        self.rule = SoftRule(
            settings.compare,
            settings.temperature,
            settings.scale_by_t2,
            settings.regression == "tempered",
        )
        is_regression = shape.kind.classes_of_examples and shape.student.labels == 1
        scored = shape.kind.classes_of_examples or shape.kind.over_vocabulary
        if settings.standardize and (is_regression or not scored):
            raise LimbeckError(
                f"{setting}.standardize: z-scores are taken over classes that exclude each other, and there are none",
                "leave it out",
            )
        self.of_labels = is_regression and settings.reads_numbers
        self.kept = settings.kept
        if self.kept is not None:
            _check_tokens(settings, shape, setting)

    @property
    def means_over_labelled(self) -> bool:
        """Where the labels of a regression are the target."""
        return self.of_labels

    def request(self, side: str, step_state: StepState) -> Request:
        """Both sides' logits, or the student's alone where the labels are the target."""
        if self.of_labels and side == "teacher":
            return NOTHING
        asked = super().request(side, step_state)
        if side == "teacher" and self.kept is not None and asked.logits:
            return Request(asked.items, asked.logits, self.kept)
        return asked

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, …) of both sides, or of the student and the batch's labels."""
        logits, kind = present(student.logits), self.shape.kind
        if self.of_labels:
            return kind.hard_label(logits, batch)
        if self.kept is not None:
            part = teacher.partial
            if part is None:  # a live teacher's, or another term looks at all of them
                part = self.kept.of(present(teacher.logits), _numbers(batch))
            distance = kind.soft_label_of_tokens(logits, part, batch, self.rule)
        else:
            targets = present(teacher.logits)
            if self.settings.standardize:
                logits, targets = F.standardize(logits), F.standardize(targets)
            distance = kind.soft_label(logits, targets, batch, self.rule)
        over_classes = (
            self.settings.mean_over == "batch_and_classes" and not kind.means_over_classes
        )
        return distance / logits.shape[-1] if over_classes else distance

    def remarks(self) -> list[Problem]:
        """A warning where z-scores say nothing but who is ahead."""
        if not self.settings.standardize or self.shape.student.labels != 2:
            return []
        if self.shape.kind.over_vocabulary:
            return []
        return [
            Problem(
                f"{self.setting}.standardize: z-scores of two classes are 1 and −1, whatever the logits",
                "leave it out for two classes",
                "warning",
            )
        ]


def _check_tokens(settings: SoftSpec, shape: Shape, setting: str) -> None:
    """Raise LimbeckError where there is no vocabulary, or all of it is needed."""
    if not shape.kind.over_vocabulary:
        raise LimbeckError(
            f"{setting}.tokens: {settings.tokens} keeps tokens of a vocabulary, and the logits of task type "
            f"{shape.kind.name} are not over one",
            "leave it out",
        )
    if settings.standardize:
        raise LimbeckError(
            f"{setting}.tokens: z-scores (standardize) are taken over the whole vocabulary",
            "leave one of them out",
        )


def _numbers(batch: Batch[str, Tensor]) -> list[int]:
    """By which tokens are sampled: those of the examples, or their places."""
    host = on_host(batch)
    if "index" in host:
        return [int(number) for number in host["index"].tolist()]
    return list(range(len(next(iter(host.values())))))


def present(logits: Tensor | None) -> Tensor:
    """Logits that were asked for; raises LimbeckError if there are none."""
    if logits is None:
        raise LimbeckError("the model gave no logits", "use a model with a task head")
    return logits
