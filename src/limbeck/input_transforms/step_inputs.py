"""The inputs of one training step, as student and teachers are given them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import Passes, Request, Trace
from limbeck.input_transforms.input_transform import Batch, InputTransform, ModelPass
from limbeck.support.step_state import StepState

_NOTHING = Request()


@dataclass(frozen=True)
class StepInputs:
    """A batch, and how a model is captured on it.

    Attributes:
        batch: as the collator made it: the student's inputs and the labels.
        transform: what is done to it; None for nothing.
        sampled: what the transform has sampled for this step.
    """

    batch: Batch
    transform: InputTransform | None = None
    sampled: Any = None

    @classmethod
    def of(
        cls,
        batch: Mapping[str, Tensor],
        transform: InputTransform | None,
        step_state: StepState,
        device: torch.device,
    ) -> StepInputs:
        """The inputs of a step; what is sampled for it lies on `device`.

        Raises:
            LimbeckError: the batch is none that the transform can take.
        """
        if transform is None:
            return cls(batch)
        transform.check(batch)
        return cls(batch, transform, transform.draw(batch, step_state, device))

    @property
    def as_stored(self) -> bool:
        """Whether teacher outputs that were stored before training are those of this step."""
        return self.transform is None or self.transform.why_live is None

    def sees_first(self, student: PreTrainedModel) -> Request:
        """What has to be seen of the student before a teacher is asked."""
        return _NOTHING if self.transform is None else self.transform.sees_first(student)

    def after(self, student: Trace) -> StepInputs:
        """The inputs once the student has been seen."""
        if self.transform is None:
            return self
        sampled = self.transform.choose(self.batch, self.sampled, student)
        return replace(self, sampled=sampled)

    def of_student(
        self,
        model: PreTrainedModel,
        request: Request,
        clean: Request,
        run: Callable[[Batch, Request], Trace],
        passes: Passes,
    ) -> Trace:
        """What the student shows; `clean`: what is wanted of it on the batch as it is."""
        asked = ModelPass(model, "student", self.batch, request, clean, run, passes)
        return self._capture(asked)

    def of_teacher(
        self,
        model: PreTrainedModel,
        batch: Batch,
        request: Request,
        run: Callable[[Batch, Request], Trace],
        passes: Passes,
    ) -> Trace:
        """What a teacher shows of the same examples; `batch`: as this teacher reads them."""
        return self._capture(ModelPass(model, "teacher", batch, request, _NOTHING, run, passes))

    def _capture(self, asked: ModelPass) -> Trace:
        if self.transform is None:
            return asked.plain()
        return self.transform.capture(asked, self.sampled)


def as_inputs(inputs: StepInputs | Mapping[str, Tensor]) -> StepInputs:
    """A plain batch is the inputs of a step that nothing is done to."""
    return inputs if isinstance(inputs, StepInputs) else StepInputs(inputs)
