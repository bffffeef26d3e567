"""What a training costs: its seconds by part, and the passes of student and teachers.

Part of `limbeck.training`. Of all processes and all starts of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelerate.utils import gather_object
from transformers import Trainer

from limbeck.activations import Passes
from limbeck.support.machine import is_first
from limbeck.teachers import Team
from limbeck.teachers.teacher import Teacher
from limbeck.training.distiller import Distiller
from limbeck.training.progress import Progress

PassesState = dict[str, Any]
"""`student`: its passes; `teachers`: those of each, as `Passes.state` has them."""


class Counts(Trainer):
    """A Trainer that knows what its work costs."""

    progress: Progress
    teacher: Teacher | Team | None

    @property
    def distiller(self) -> Distiller:
        """Student and objectives, out of whatever the Trainer wrapped around them."""
        return self.accelerator.unwrap_model(self.model)

    def begin_counting(self) -> None:
        """Forget passes that are none of this training's."""
        self.distiller.passes = Passes()
        for teacher in self._teachers:
            teacher.passes = Passes()

    def passes(self) -> PassesState:
        """What student and teachers have been run on so far. Every process has to call it."""
        teachers = self._teachers
        own: PassesState = {
            "student": self.distiller.passes.state(),
            "teachers": [teacher.passes.state() for teacher in teachers],
        }
        every: list[PassesState] = gather_object([own])
        return {
            "student": Passes.of(*(state["student"] for state in every)).state(),
            "teachers": [
                Passes.of(*(state["teachers"][place] for state in every)).state()
                for place in range(len(teachers))
            ],
        }

    def restore_passes(self, state: PassesState | None) -> None:
        """Go on from a checkpoint's, which are those of all processes: the first one takes them."""
        self.begin_counting()
        if state is None or not is_first():
            return
        self.distiller.passes = Passes.of(state["student"])
        for teacher, own in zip(self._teachers, state["teachers"], strict=True):
            teacher.passes = Passes.of(own)

    @property
    def _teachers(self) -> Sequence[Teacher]:
        return () if self.teacher is None else self.teacher.members

    # ---- seconds ----

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As the Trainer's; its time is counted apart."""
        with self.progress.parts.part("evaluation"):
            return super().evaluate(*args, **kwargs)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """As the Trainer's; its time is counted apart."""
        with self.progress.parts.part("evaluation"):
            return super().predict(*args, **kwargs)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        with self.progress.parts.part("saving"):
            super()._save_checkpoint(*args, **kwargs)
