"""The terms of a run whose teachers take turns: built for each of them, in its own depth and width.

Part of `limbeck.objectives`. Learned maps are a teacher's own: two teachers' states are not in one
space, even where they are of one width.
"""

from collections.abc import Mapping as Batch
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from pydantic import Field
from torch import Tensor, nn

from limbeck import functional as F
from limbeck.activations import Request, Trace
from limbeck.objectives import predictions, registration
from limbeck.objectives.base import Objective, Shape, TermSettings
from limbeck.objectives.group import Loss, Objectives
from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.support.settings import Temperature
from limbeck.support.step_state import StepState
from limbeck.tasks.rules import EXAMPLE_WEIGHTS, need_labels


class TeamObjectives(nn.Module):
    """`Objectives` for each teacher; a step uses those for its own teacher: `of(step_state.teacher)`.

    Args:
        loss: the terms. Its curriculum is one for all teachers; what its example weights learn is each teacher's own.
        shapes: the student with each teacher.
        names: of the teachers, for messages.

    Raises:
        LimbeckError: every term that cannot be built for one of the teachers; a curriculum whose
            student layers are others with another teacher.
    """

    def __init__(self, loss: Loss, shapes: Sequence[Shape], names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        self.each = nn.ModuleList()
        problems: list[Problem] = []
        for name, shape in zip(names, shapes, strict=True):
            try:
                self.each.append(Objectives(loss, shape))
            except LimbeckError as error:
                problems += [_of_teacher(name, problem) for problem in error.problems]
        raise_problems(problems)
        self._share_curriculum()

    def _share_curriculum(self) -> None:
        """The layers' progress belongs to the student, not to a teacher: one for all."""
        first = self.of(0).curriculum
        if first is None:
            return
        for number, name in enumerate(self.names):
            own = self.of(number).curriculum
            assert own is not None  # all have the same spec
            if own.layers != first.layers:
                raise LimbeckError(
                    f"curriculum: with teacher {self.names[0]} the student layers {first.layers} learn "
                    f"one after the other, with teacher {name} {own.layers}",
                    "map the same student layers for all teachers: mapping.student_layers",
                )
            self.of(number).curriculum = first

    def of(self, teacher: int) -> Objectives:
        """The terms for one teacher."""
        found = self.each[teacher]
        assert isinstance(found, Objectives)
        return found

    def ever(self, side: str) -> Request:
        """All activations that a step may request of a side, with any teacher."""
        return reduce(or_, (self.of(number).ever(side) for number in range(len(self.each))))

    def remarks(self) -> list[Problem]:
        """As `Objectives.remarks`, of all teachers; each once."""
        found = (one for number in range(len(self.each)) for one in self.of(number).remarks())
        return list(dict.fromkeys(found))

    def active_layers(self, step_state: StepState) -> dict[str, list[list[int]]]:
        """[student layer, teacher layer] pairs of every term that has layers, by teacher."""
        return {
            f"{term} ({name})": pairs
            for number, name in enumerate(self.names)
            for term, pairs in self.of(number)
            .active_layers(replace(step_state, teacher=number))
            .items()
        }


def _of_teacher(name: str, problem: Problem) -> Problem:
    return replace(problem, message=f"{problem.message} (teacher {name})")


# The term that sees each of several teachers' outputs.


class ErrorWeightedSpec(TermSettings):
    """Every teacher's output distribution, weighted by its error on the example (MT-BERT)."""

    temperature: Temperature = Field(1.0, description="divides both sides' logits")


@registration.objective("error_weighted", settings=ErrorWeightedSpec)
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
        if not shape.one_label:
            raise LimbeckError(
                f"{setting}: error_weighted weighs teachers by one label per example, and "
                f"{shape.kind.name} has no such label",
                "use soft_cross_entropy, which takes the teachers' mean",
            )

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], step_state: StepState
    ) -> Tensor:
        """Logits (B, C) of the student, (T, B, C) of the teachers; one teacher is a team of one."""
        need_labels(batch, ("labels",))
        logits, labels = predictions.present(student.logits), batch["labels"]
        each = predictions.present(teacher.logits)[None] if teacher.each is None else teacher.each
        if logits.shape[-1] == 1:
            return F.error_weighted_mse(logits[..., 0], each[..., 0], labels.float())
        return F.error_weighted_cross_entropy(
            logits,
            each,
            labels,
            temperature=self.settings.temperature,
            weights=batch.get(EXAMPLE_WEIGHTS),
        )
