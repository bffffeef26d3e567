"""The one module that is trained: a student together with the learned parts of its objectives.

Part of `limbeck.training`. Capture, objectives and their weighted sum run inside `forward`, because
outside it neither distributed data parallelism nor autocast would see them. The teacher is not part
of it: its trace comes in as an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.activations import CompiledCapture, Passes, Request, Trace, capture
from limbeck.mixup import Mixture, capture_mixed
from limbeck.objectives import Objectives, TeamObjectives
from limbeck.step_state import StepState
from limbeck.tasks import TaskType

_NO_TEACHER = Trace()


class Distiller(nn.Module):
    """Student and objectives under one `forward`.

    Args:
        student: the model that is trained and shipped.
        objectives: the terms; their projections are trained with the student and never shipped.
        kind: what the student's head answers.
        compiled: run the student's training passes as compiled graphs, but for mixed inputs.
        bandit: what a team of teachers learns about whom to draw; checkpoints carry it.
        compact: in evaluation keep only what scores need (`TaskType.answers`), not the logits.
    """

    def __init__(
        self,
        student: PreTrainedModel,
        objectives: Objectives | TeamObjectives,
        *,
        kind: TaskType,
        compact: bool = False,
        compiled: bool = False,
        bandit: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.student = student
        self.objectives = objectives
        self.bandit = bandit
        self.kind = kind
        self.compact = compact
        self.passes = Passes()
        """The student's passes in training."""
        self._capture: Callable[[dict[str, Tensor], Request], Trace] = (
            CompiledCapture(student) if compiled else partial(capture, student)
        )

    @property
    def config(self) -> Any:
        """The student's configuration, where the Trainer looks for it."""
        return self.student.config

    @property
    def main_input_name(self) -> str:
        """Which column of a batch the student reads, where the Trainer looks for it."""
        return self.student.main_input_name

    def get_input_embeddings(self) -> nn.Module:
        """The student's, on which the Trainer puts NEFTune's noise."""
        return self.student.get_input_embeddings()

    def activation_checkpointing_enable(self, **kwargs: Any) -> None:
        """Trade time for memory in the student."""
        self.student.activation_checkpointing_enable(**kwargs)

    def gradient_checkpointing_enable(self, **kwargs: Any) -> None:
        """Trade time for memory in the student."""
        self.student.gradient_checkpointing_enable(**kwargs)

    def forward(
        self,
        *,
        step_state: StepState | None = None,
        teacher: Trace | None = None,
        mixture: Mixture | None = None,
        **batch: Tensor,
    ) -> dict[str, Any]:
        """With a moment: the loss and its terms. Without: the logits, and their loss if labelled."""
        if step_state is None:
            return self._predict(batch)
        request = self.objectives.request("student", step_state)
        if mixture is None:
            student = self._capture(batch, request)
            self.passes.add(self.student, batch, request, gradient=True)
        else:
            clean = self.objectives.request("clean", step_state)
            student = capture_mixed(
                self.student, batch, request, mixture, clean, passes=self.passes
            )
        terms = self.objectives(student, teacher or _NO_TEACHER, batch, step_state)
        return {"loss": self.objectives.total(terms, step_state), "terms": terms}

    def _predict(self, batch: dict[str, Tensor]) -> dict[str, Any]:
        logits = capture(self.student, batch, Request.of_logits()).logits
        assert logits is not None  # capture refuses a model without a head
        kept = self.kind.answers(self.student, batch, logits) if self.compact else logits
        if any(name not in batch for name in self.kind.label_names):
            return {"logits": kept}
        return {"loss": self.kind.hard_label(logits, batch), "logits": kept}
