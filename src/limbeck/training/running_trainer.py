"""What callbacks and parts of a training may ask of the trainer that runs them. Part of `limbeck.training`.

They stand below the trainer, which imports them; they know it by this protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import nn
from transformers import PreTrainedModel, TrainerState, TrainingArguments

from limbeck.input_transforms import InputTransform
from limbeck.objectives import Objectives, TeamObjectives
from limbeck.support.step_state import StepState
from limbeck.tasks import TaskType
from limbeck.teachers import SampledTeam, Team
from limbeck.teachers.teacher import Teacher
from limbeck.training.optimizer import Optimisation
from limbeck.training.progress import Progress


class RunningTrainer(Protocol):
    """A `DistillationTrainer`."""

    args: TrainingArguments
    state: TrainerState
    accelerator: Any
    callback_handler: Any
    own_callbacks: set[int]
    data_collator: Any
    train_dataset: Any
    eval_dataset: Any
    kind: TaskType
    student: PreTrainedModel
    teacher: Teacher | Team | None
    objectives: Objectives | TeamObjectives
    transform: InputTransform | None
    optimisation: Optimisation
    progress: Progress

    @property
    def parts(self) -> Sequence[Any]:
        """The parts that have been trained (`limbeck.training.parts.FinishedPart`)."""
        ...

    @property
    def distiller(self) -> nn.Module:
        """Student and objectives."""
        ...

    @property
    def sampled_team(self) -> SampledTeam | None:
        """The team whose members take turns, if that is who teaches."""
        ...

    @property
    def training_rows(self) -> int | None:
        """How many training examples there are; None where nobody knows."""
        ...

    @property
    def folder(self) -> Path:
        """Where checkpoints and parts lie."""
        ...

    def step_state_at(self, step: int) -> StepState:
        """The state of an optimisation step, counted from 0."""
        ...

    def start_epoch(self, epoch: int) -> None:
        """Put an epoch, counted from 0, and its examples in their places."""
        ...

    def readable(self, rows: Any) -> tuple[Any, Any]:
        """Rows without the columns that nobody reads, and what makes batches of them."""
        ...

    def for_part(
        self,
        student: PreTrainedModel,
        teacher: Any,
        args: TrainingArguments,
        course: Any,
        **changes: Any,
    ) -> Any:
        """A trainer of a part: all that the user gave this one, but for the `changes`."""
        ...
