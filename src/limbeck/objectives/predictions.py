"""Prediction-layer terms: the labels' loss and the teacher's soft label. Part of `limbeck.objectives`.

What a label is, and over which positions of a batch the two terms run, is the kind's to say
(`limbeck.tasks`).
"""

from __future__ import annotations

from collections.abc import Mapping as Batch

from torch import Tensor

from limbeck.activations import Request, Trace
from limbeck.errors import LimbeckError
from limbeck.objectives.base import NOTHING, Objective
from limbeck.objectives.shape import Shape
from limbeck.objectives.spec import HardSpec, SoftSpec
from limbeck.step_state import StepState
from limbeck.tasks import SoftRule


class HardLabel(Objective):
    """Cross-entropy with the labels, or squared error for regression (in every paper, L_CE)."""

    def __init__(self, spec: HardSpec, shape: Shape) -> None:
        super().__init__()
        self.kind = shape.kind

    def request(self, side: str, step_state: StepState) -> Request:
        """The student's logits."""
        return Request.of_logits() if side == "student" else NOTHING

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, …) against the batch's labels.

        Of mixed input against both examples' labels, by their shares: λ·CE(z, y_i) + (1 − λ)·CE(z, y_j)
        (Zhang et al. 2018, mixup).
        """
        logits, mixed = present(student.logits), student.mixed
        own = self.kind.hard_label(logits, batch)
        if mixed is None:
            return own
        theirs = {
            name: batch[name][mixed.partner] for name in self.kind.label_names if name in batch
        }
        partners = self.kind.hard_label(logits, {**batch, **theirs})
        return mixed.share * own + (1 - mixed.share) * partners


class SoftLabel(Objective):
    """The teacher's outputs as targets (Hinton et al.): soft cross-entropy or KL.

    Squared error of the outputs for regression, or whatever the recipe's `regression` says.
    """

    def __init__(self, spec: SoftSpec, shape: Shape) -> None:
        super().__init__()
        self.kind = shape.kind
        self.rule = SoftRule(
            spec.compare, spec.temperature, spec.scale_by_t2, spec.regression == "tempered"
        )
        is_regression = shape.kind.has_classes and shape.student.labels == 1
        self.of_labels = is_regression and spec.regression == "labels"
        self.over_classes = spec.mean_over == "batch_and_classes"

    def request(self, side: str, step_state: StepState) -> Request:
        """Both sides' logits, or the student's alone where the labels are the target."""
        return NOTHING if self.of_labels and side == "teacher" else Request.of_logits()

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, …) of both sides, or of the student and the batch's labels."""
        logits = present(student.logits)
        if self.of_labels:
            return self.kind.hard_label(logits, batch)
        distance = self.kind.soft_label(logits, present(teacher.logits), batch, self.rule)
        return distance / logits.shape[-1] if self.over_classes else distance


def present(logits: Tensor | None) -> Tensor:
    """Logits that were asked for; raises LimbeckError if there are none."""
    if logits is None:
        raise LimbeckError("the model gave no logits", "use a model with a task head")
    return logits
