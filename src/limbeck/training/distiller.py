"""The one module that is trained: a student together with the learned parts of its objectives.

Part of `limbeck.training`. Capture, objectives and their weighted sum run inside `forward`, because
outside it neither distributed data parallelism nor autocast would see them. The teacher is not part
of it: the teacher of a step comes in as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.activations import CompiledCapture, Passes, Request, Trace, capture
from limbeck.input_transforms import StepInputs
from limbeck.objectives import Objectives, TeamObjectives
from limbeck.support.step_state import StepState
from limbeck.tasks import TaskType

_NO_TEACHER = Trace()
_NOTHING = Request()


class Distiller(nn.Module):
    """Student and objectives under one `forward`.

    Args:
        student: the model that is trained and shipped.
        objectives: the terms; their projections are trained with the student and never shipped.
        kind: what the student's head predicts.
        compiled: run the student's training passes as compiled graphs, but for inputs that are
            transformed.
        bandit: what a team of teachers learns about whom to draw; checkpoints carry it.
        compact: in evaluation keep only what scores need (`TaskType.compact_outputs`), not the logits.
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
        self._capture: Callable[[Mapping[str, Tensor], Request], Trace] = (
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
        inputs: StepInputs | None = None,
        *,
        step_state: StepState | None = None,
        teacher: Callable[[StepInputs, Request], Trace] | None = None,
        **batch: Tensor,
    ) -> dict[str, Any]:
        """Of a step's inputs: the loss and its terms. Of a plain batch: the logits, and their loss if labelled.

        Args:
            inputs: of a training step.
            step_state: where the run stands, with `inputs`.
            teacher: the teacher of this step; it runs only if a term needs something of it.
            **batch: in evaluation.
        """
        if inputs is None:
            return self._predict(batch)
        assert step_state is not None
        student, taught = self._both(inputs, step_state, teacher)
        terms = self.objectives(student, taught, inputs.batch, step_state)
        return {"loss": self.objectives.total(terms, step_state), "terms": terms}

    def _both(
        self,
        inputs: StepInputs,
        step_state: StepState,
        teacher: Callable[[StepInputs, Request], Trace] | None,
    ) -> tuple[Trace, Trace]:
        """What student and teacher show: the teacher first, unless its inputs depend on the student."""
        asked = self.objectives.request("teacher", step_state)

        def of_teacher(inputs: StepInputs) -> Trace:
            if teacher is None or not (asked.items or asked.logits):
                return _NO_TEACHER
            return teacher(inputs, asked)

        first = inputs.sees_first(self.student)
        if not first.items and not first.logits:
            shown_by_teacher = of_teacher(inputs)
            return self._shown(inputs, step_state), shown_by_teacher
        shown = self._shown(inputs, step_state, first)
        return shown, of_teacher(inputs.after(shown))

    def _shown(self, inputs: StepInputs, step_state: StepState, also: Request = _NOTHING) -> Trace:
        request = self.objectives.request("student", step_state) | also
        plain = inputs.transform is None
        clean = _NOTHING if plain else self.objectives.request("clean", step_state)
        return inputs.of_student(self.student, request, clean, self._capture, self.passes)

    def _predict(self, batch: dict[str, Tensor]) -> dict[str, Any]:
        logits = capture(self.student, batch, Request.of_logits()).logits
        assert logits is not None  # capture refuses a model without a head
        kept = self.kind.compact_outputs(self.student, batch, logits) if self.compact else logits
        if any(name not in batch for name in self.kind.label_names):
            return {"logits": kept}
        return {"loss": self.kind.hard_label(logits, batch), "logits": kept}
