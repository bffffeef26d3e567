"""Class logits compared otherwise than as one distribution: DIST, decoupled KD, squared error, pseudo-labels.

Part of `limbeck.objectives`. All compare classes, so that a regression or a task type without one label an
example is refused.
"""

from __future__ import annotations

from collections.abc import Mapping as Batch
from typing import Literal

from pydantic import Field
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import Trace
from limbeck.mappings.projections import Projections
from limbeck.objectives.base import Objective, TermSettings
from limbeck.objectives.predictions import present
from limbeck.objectives.registration import objective
from limbeck.objectives.shape import Shape
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.settings import Number, Temperature
from limbeck.support.step_state import StepState
from limbeck.tasks.rules import EXAMPLE_WEIGHTS, need_labels


class OfClasses(Objective):
    """A comparison of logits (B, C).

    Raises:
        LimbeckError: the task has no classes, or one output.
    """

    with_two = ""
    """What two classes leave of it, in words."""
    exclusive = True
    """Whether the classes have to exclude each other."""

    def __init__(
        self, settings: TermSettings, shape: Shape, setting: str, maps: Projections | None = None
    ) -> None:
        super().__init__(settings, shape, setting, maps)
        if self.exclusive or not shape.kind.several_classes:
            need_classes(shape, setting, settings.compare)

    def remarks(self) -> list[Problem]:
        """A warning where two classes leave little."""
        if self.shape.student.labels != 2 or not self.with_two:
            return []
        return [
            Problem(
                f"{self.setting}: the task has two classes, and {self.with_two}",
                "use soft_kl (method kd) for two classes, or accept it",
                "warning",
            )
        ]


class DistSpec(TermSettings):
    """Correlations with the teacher's predictions: among an example's classes, and among a class's examples."""

    compare: Literal["dist"]
    temperature: Temperature = Field(1.0, description="divides both sides' logits")
    beta: Number = Field(2.0, ge=0, description="weight of the inter-class correlation, by example")
    gamma: Number = Field(2.0, ge=0, description="weight of the intra-class correlation, by class")


@objective("dist", settings=DistSpec)
class Dist(OfClasses):
    """Pearson's correlations of softened predictions (DIST, Huang et al. 2022)."""

    settings: DistSpec
    with_two = "the inter-class correlation of two numbers that add up to 1 is 1 or −1"

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, C) of both sides."""
        own = self.settings
        return F.dist(
            present(student.logits),
            present(teacher.logits),
            beta=own.beta,
            gamma=own.gamma,
            temperature=own.temperature,
        )


class DkdSpec(TermSettings):
    """The teacher's belief in the label, and its distribution over the other classes, weighed apart."""

    compare: Literal["dkd"]
    temperature: Temperature = Field(4.0, description="divides both sides' logits")
    alpha: Number = Field(1.0, ge=0, description="weight of the target class's part")
    beta: Number = Field(8.0, ge=0, description="weight of the other classes' part")
    standardize: bool = Field(
        False, description="z-scores of both sides' logits first (Sun et al. 2024)"
    )


@objective("dkd", settings=DkdSpec)
class DecoupledKD(OfClasses):
    """Target-class and non-target-class KD (Zhao et al. 2022)."""

    reads_labels = True
    weighs_examples = True
    counts_labelled = True
    settings: DkdSpec
    with_two = "there is one other class, over which there is nothing to learn: its part is 0"

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, C) of both sides, and the batch's labels (B)."""
        need_labels(batch, ("labels",))
        own = self.settings
        ours, theirs = present(student.logits), present(teacher.logits)
        if own.standardize:
            ours, theirs = F.standardize(ours), F.standardize(theirs)
        return F.dkd(
            ours,
            theirs,
            batch["labels"],
            alpha=own.alpha,
            beta=own.beta,
            temperature=own.temperature,
            weights=batch.get(EXAMPLE_WEIGHTS),
        )


class LogitMseSpec(TermSettings):
    """Squared error of the logits, mean over batch and classes."""

    compare: Literal["logit_mse"]


@objective("logit_mse", settings=LogitMseSpec)
class LogitMse(OfClasses):
    """Logits regressed on the teacher's (Ba and Caruana 2014)."""

    weighs_examples = True
    shifts_matter = True
    exclusive = False
    settings: LogitMseSpec

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, C) of both sides."""
        weights = batch.get(EXAMPLE_WEIGHTS)
        return F.mse(present(student.logits), present(teacher.logits), weights=weights)


class PseudoLabelSpec(TermSettings):
    """Cross-entropy with the teacher's likeliest class."""

    compare: Literal["pseudo_label"]


@objective("pseudo_label", settings=PseudoLabelSpec)
class PseudoLabel(OfClasses):
    """The teacher's class as a hard label (self-training; Lee 2013)."""

    weighs_examples = True
    settings: PseudoLabelSpec

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, C) of both sides."""
        weights = batch.get(EXAMPLE_WEIGHTS)
        return F.pseudo_label(present(student.logits), present(teacher.logits), weights=weights)


def need_classes(shape: Shape, setting: str, what: str) -> None:
    """Raise LimbeckError for a task without classes of whole examples."""
    if not shape.kind.classes_of_examples:
        has = "has such as do not" if shape.kind.several_classes else "has none"
        raise LimbeckError(
            f"{setting}: {what} compares classes of whole examples that exclude each other, and task type "
            f"{shape.kind.name} {has}",
            "use soft_cross_entropy or soft_kl",
        )
    if shape.student.labels == 1:
        raise LimbeckError(
            f"{setting}: {what} compares classes, and a regression has one number",
            "use soft_kl, which is squared error there (method kd)",
        )
