"""What the parts of a training may ask of the trainer that runs them. Part of `limbeck.training`.

Callbacks and plans stand below the trainer, which imports them; they know it by these protocols.
"""

from __future__ import annotations

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
from limbeck.training.course import Course, Part
from limbeck.training.optimizer import Optimisation
from limbeck.training.progress import Progress


class HasCallbacks(Protocol):
    """A trainer that tells its own callbacks from the user's."""

    callback_handler: Any
    own_callbacks: set[int]


class CountsTerms(Protocol):
    """What tells whether a training is still one of numbers."""

    state: TrainerState
    progress: Progress

    @property
    def distiller(self) -> nn.Module:
        """Student and objectives."""
        ...


class RunningTrainer(Protocol):
    """What a callback sees of a training."""

    args: TrainingArguments
    state: TrainerState
    accelerator: Any
    progress: Progress
    objectives: Objectives | TeamObjectives
    parts: list[Part]

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

    def step_state_at(self, step: int) -> StepState:
        """The state of an optimisation step, counted from 0."""
        ...

    def start_epoch(self, epoch: int) -> None:
        """Put an epoch, counted from 0, and its examples in their places."""
        ...

    def readable(self, rows: Any) -> tuple[Any, Any]:
        """Rows without the columns that nobody reads, and what makes batches of them."""
        ...


class AsksTeachers(Protocol):
    """What decides whether a teacher has to be asked again: terms, rows, and what is done to them."""

    args: TrainingArguments
    kind: TaskType
    teacher: Teacher | Team | None
    objectives: Objectives | TeamObjectives
    transform: InputTransform | None
    train_dataset: Any

    def readable(self, rows: Any) -> tuple[Any, Any]:
        """Rows without the columns that nobody reads, and what makes batches of them."""
        ...


class StagedTrainer(HasCallbacks, Protocol):
    """A trainer of a method of several parts, as its plan sees it."""

    args: TrainingArguments
    train_dataset: Any
    state: TrainerState
    progress: Progress
    student: PreTrainedModel
    teacher: Teacher | Team | None
    optimisation: Optimisation
    data_collator: Any
    eval_dataset: Any

    @property
    def folder(self) -> Path:
        """Where checkpoints and parts lie."""
        ...

    def for_part(
        self,
        student: PreTrainedModel,
        teacher: Any,
        args: TrainingArguments,
        course: Course | None,
        **changes: Any,
    ) -> StagedTrainer:
        """A trainer of a part: all that the user gave this one, but for the `changes`."""
        ...

    def start_or_continue(self, checkpoint: Path | None) -> None:
        """Train from the beginning, or from a checkpoint, to the end and the best epoch's weights."""
        ...

    def evaluate(self) -> dict[str, float]:
        """The scores of its student on the evaluation data."""
        ...
