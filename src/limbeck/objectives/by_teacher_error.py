"""The term that sees each of several teachers' outputs. Part of `limbeck.objectives`."""

from __future__ import annotations

from collections.abc import Mapping as Batch
from typing import Literal

from pydantic import Field
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import Trace
from limbeck.objectives.base import Objective, TermSettings
from limbeck.objectives.predictions import present
from limbeck.objectives.registration import objective
from limbeck.objectives.shape import Shape
from limbeck.support.errors import LimbeckError
from limbeck.support.settings import Temperature
from limbeck.support.step_state import StepState
from limbeck.tasks.batch_columns import EXAMPLE_WEIGHTS
from limbeck.tasks.row_checks import need_labels


class ErrorWeightedSpec(TermSettings):
    """Every teacher's output distribution, weighted by its error on the example (MT-BERT)."""

    compare: Literal["error_weighted"]
    temperature: Temperature = Field(1.0, description="divides both sides' logits")


@objective("error_weighted", settings=ErrorWeightedSpec)
class ErrorWeighted(Objective):
    """Each teacher's soft label, weighted by its error on the example (MT-BERT).

    Raises:
        LimbeckError: the task has no single label an example.
    """

    reads_labels = True
    weighs_examples = True
    counts_labelled = True
    settings: ErrorWeightedSpec

    def __init__(self, settings: ErrorWeightedSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        if not shape.kind.classes_of_examples:
            raise LimbeckError(
                f"{setting}: error_weighted weighs teachers by one label an example, and "
                f"{shape.kind.name} has none",
                "use soft_cross_entropy, which takes the teachers' mean",
            )

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, C) of the student, (T, B, C) of the teachers; one teacher is a team of one."""
        need_labels(batch, ("labels",))
        logits, labels = present(student.logits), batch["labels"]
        each = present(teacher.logits)[None] if teacher.each is None else teacher.each
        if logits.shape[-1] == 1:
            return F.error_weighted_mse(logits[..., 0], each[..., 0], labels.float())
        return F.error_weighted_cross_entropy(
            logits,
            each,
            labels,
            temperature=self.settings.temperature,
            weights=batch.get(EXAMPLE_WEIGHTS),
        )
