"""The one module that is trained: a student together with the learned parts of its objectives.

Part of `limbeck.engine`. Capture, objectives and their weighted sum run inside `forward`, because
outside it neither distributed data parallelism nor autocast would see them. The teacher is not part
of it: its trace comes in as an argument.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.capture import Request, Trace, capture
from limbeck.moment import Moment
from limbeck.objectives import Objectives, hard_label

_NO_TEACHER = Trace()


class Distiller(nn.Module):
    """Student and objectives under one `forward`.

    Args:
        student: the model that is trained and shipped.
        objectives: the terms; their projections are trained with the student and never shipped.
    """

    def __init__(
        self, student: PreTrainedModel, objectives: Objectives, *, regression: bool
    ) -> None:
        super().__init__()
        self.student = student
        self.objectives = objectives
        self.regression = regression

    @property
    def config(self) -> Any:
        """The student's configuration, where the Trainer looks for it."""
        return self.student.config

    def gradient_checkpointing_enable(self, **kwargs: Any) -> None:
        """Trade time for memory in the student."""
        self.student.gradient_checkpointing_enable(**kwargs)

    def forward(
        self, *, moment: Moment | None = None, teacher: Trace | None = None, **batch: Tensor
    ) -> dict[str, Any]:
        """With a moment: the loss and its terms. Without: the logits, and their loss if labelled."""
        if moment is None:
            return self._predict(batch)
        request = self.objectives.request("student", moment)
        student = capture(self.student, batch, request)
        terms = self.objectives(student, teacher or _NO_TEACHER, batch, moment)
        return {"loss": self.objectives.total(terms, moment), "terms": terms}

    def _predict(self, batch: dict[str, Tensor]) -> dict[str, Any]:
        logits = capture(self.student, batch, Request.of_logits()).logits
        if "labels" not in batch:
            return {"logits": logits}
        loss = hard_label(logits, batch["labels"], regression=self.regression)
        return {"loss": loss, "logits": logits}
