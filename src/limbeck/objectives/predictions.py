"""Prediction-layer terms: the labels' loss and the teacher's soft label. Part of `limbeck.objectives`."""

from __future__ import annotations

from collections.abc import Mapping as Batch

from torch import Tensor, nn

from limbeck import functional as F
from limbeck.capture import Request, Trace
from limbeck.errors import LimbeckError
from limbeck.moment import Moment
from limbeck.objectives.base import NOTHING, Objective
from limbeck.objectives.shape import Shape
from limbeck.objectives.spec import HardSpec, SoftSpec


class HardLabel(Objective):
    """Cross-entropy with the labels, or squared error for regression (in every paper, L_CE)."""

    def __init__(self, spec: HardSpec, shape: Shape) -> None:
        super().__init__()
        self.regression = shape.regression

    def request(self, side: str, moment: Moment) -> Request:
        """The student's logits."""
        return Request.of_logits() if side == "student" else NOTHING

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], moment: Moment
    ) -> Tensor:
        """Logits (B, C) against `batch["labels"]` (B)."""
        return hard_label(student.logits, batch["labels"], regression=self.regression)


def hard_label(logits: Tensor | None, labels: Tensor, *, regression: bool) -> Tensor:
    """Cross-entropy of logits (B, C), or squared error of outputs (B, 1), with labels (B)."""
    logits = _present(logits)
    if regression:
        return nn.functional.mse_loss(logits.float().squeeze(-1), labels.float())
    return nn.functional.cross_entropy(logits.float(), labels)


def _present(logits: Tensor | None) -> Tensor:
    if logits is None:
        raise LimbeckError("the model gave no logits", "use a model with a task head")
    return logits


class SoftLabel(Objective):
    """The teacher's outputs as targets (Hinton et al.): soft cross-entropy or KL.

    Squared error of the outputs for regression.
    """

    def __init__(self, spec: SoftSpec, shape: Shape) -> None:
        super().__init__()
        self.spec = spec
        self.regression = shape.regression
        self.distance = F.soft_kl if spec.compare == "soft_kl" else F.soft_cross_entropy

    def request(self, side: str, moment: Moment) -> Request:
        """Both sides' logits."""
        return Request.of_logits()

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], moment: Moment
    ) -> Tensor:
        """Logits (B, C) of both sides."""
        if self.regression:
            return F.mse(_present(student.logits), _present(teacher.logits))
        return self.distance(
            _present(student.logits),
            _present(teacher.logits),
            temperature=self.spec.temperature,
            scale_by_t2=self.spec.scale_by_t2,
        )
