"""The term that sees each of several teachers' answers. Part of `limbeck.objectives`."""

from __future__ import annotations

from collections.abc import Mapping as Batch

from torch import Tensor

from limbeck import functional as F
from limbeck.activations import Request, Trace
from limbeck.errors import LimbeckError
from limbeck.objectives.base import Objective
from limbeck.objectives.predictions import present
from limbeck.objectives.shape import Shape
from limbeck.objectives.spec import ErrorWeightedSpec
from limbeck.step_state import StepState
from limbeck.tasks.task_type import need_labels


class ErrorWeighted(Objective):
    """Each teacher's soft label, weighted by its error on the example (MT-BERT).

    Raises:
        LimbeckError: the task has no single label an example.
    """

    def __init__(self, spec: ErrorWeightedSpec, shape: Shape, setting: str) -> None:
        super().__init__()
        if not shape.kind.has_classes:
            raise LimbeckError(
                f"{setting}: error_weighted weighs teachers by one label an example, and "
                f"{shape.kind.name} has none",
                "use soft_cross_entropy, which takes the teachers' mean",
            )
        self.temperature = spec.temperature

    def request(self, side: str, step_state: StepState) -> Request:
        """Both sides' logits."""
        return Request.of_logits()

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, C) of the student, (T, B, C) of the teachers; one teacher is a team of one."""
        need_labels(batch, ("labels",))
        logits, labels = present(student.logits), batch["labels"]
        each = present(teacher.logits)[None] if teacher.each is None else teacher.each
        if logits.shape[-1] == 1:
            return F.error_weighted_mse(logits[..., 0], each[..., 0], labels.float())
        return F.error_weighted_cross_entropy(logits, each, labels, temperature=self.temperature)
