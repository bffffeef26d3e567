"""What one stage of a run trains on and whom it learns from. Part of `limbeck.run`.

A stage owns its rows and its teacher: the teacher is bound to the rows, and finds what it reads in their batches. What
comes later in a run (augmented examples, shares of several teachers, stored outputs) makes new inputs out of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from datasets import Dataset
from transformers import PreTrainedModel

from limbeck.data import Collator
from limbeck.data.encoding import LazyRows
from limbeck.recipe import Recipe, Stage
from limbeck.run.named_teachers import Named
from limbeck.run.stage_rows import EncodedRows
from limbeck.tasks import Processor
from limbeck.teachers import Team, members_of
from limbeck.teachers.teacher import Teacher


@dataclass(frozen=True)
class StageInputs:
    """Rows and teacher of one stage.

    Attributes:
        stage: which one, with the recipe of this stage alone.
        rows: what it trains on.
        readers: the teachers it may learn from, each bound to the rows.
        teacher: whom it learns from, the one or a team of them; None if its terms look at no teacher.
        own: it has a teacher of its own, whoever teaches the run.
        holdout: training rows that nobody is trained on: whom to sample is learned on them.
        without_outputs: of rows that it alone has, how many were left out because stored teachers know nothing of them.
    """

    stage: Stage
    rows: EncodedRows
    readers: tuple[Named, ...] = ()
    teacher: Teacher | Team | None = None
    own: bool = False
    holdout: Dataset | LazyRows | None = None
    without_outputs: int = 0

    @property
    def recipe(self) -> Recipe:
        """The recipe of this stage alone."""
        return self.stage.recipe

    @property
    def members(self) -> tuple[Teacher, ...]:
        """The teachers that it learns from; none if its terms look at none."""
        return members_of(self.teacher)

    @property
    def models(self) -> dict[str, PreTrainedModel]:
        """The models that it learns from, by what messages call them."""
        if isinstance(self.teacher, Team):
            members = zip(self.teacher.names, self.teacher.members, strict=True)
            return {f"teacher {name}": member.model for name, member in members}
        return {} if self.teacher is None else {"teacher": self.teacher.model}

    def collator(self, tokenizer: Processor) -> Collator:
        """Makes the stage's training batches."""
        return self.rows.collator(tokenizer, self.recipe.padded_width)

    def taught_by(self, teacher: Teacher | Team | None) -> StageInputs:
        """The stage with this teacher or team, if its terms look at one; its members as they read the rows."""
        if teacher is None or not self.recipe.needs_teacher:
            return replace(self, teacher=None)
        bound = {id(one.teacher.model): one.teacher for one in self.readers}
        members = [bound.get(id(member.model), member) for member in teacher.members]
        return replace(self, teacher=teacher.answered_by(members))

    def on(self, rows: EncodedRows, bound: Mapping[int, Named]) -> StageInputs:
        """The stage on other rows, with its teachers as they read those (`bound`, by id of their models)."""
        readers = tuple(bound.get(id(one.teacher.model), one) for one in self.readers)
        return replace(self, rows=rows, readers=readers).taught_by(self.teacher)

    def answered_from(self, stored: Mapping[int, Teacher]) -> StageInputs:
        """The stage with outputs of its teachers stored: by place in the team who answers from disk."""
        if self.teacher is None or not stored:
            return self
        members = [stored.get(place, member) for place, member in enumerate(self.members)]
        return replace(self, teacher=self.teacher.answered_by(members))
