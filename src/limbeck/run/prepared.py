"""A run with everything it needs, loaded and encoded. Part of `limbeck.run`.

It is never changed: later additions (augmented examples, shares of teachers, stored outputs) give a new one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import EvalPrediction, PreTrainedModel

from limbeck.data import Collator
from limbeck.data.encoding import LazyRows
from limbeck.data.row_facts import facts_of
from limbeck.data.text_rows import UnlabelledRows
from limbeck.evaluation.linear_floor import LinearFloor
from limbeck.evaluation.measuring import Size, example_size
from limbeck.recipe import Recipe, Stage
from limbeck.records.facts import Execution, Numbers, VocabularyFacts
from limbeck.run.bound_rows import StudentTokens, bound
from limbeck.run.models import Named
from limbeck.run.rows import EncodedRows
from limbeck.tasks import Processor, Results, ScoredSplit, Task
from limbeck.teachers.teacher import Teacher
from limbeck.teachers.team import Team, members_of

TEST = "test"


@dataclass(frozen=True)
class FinalRows:
    """Labelled test rows that wait until a run is trained.

    They are no dataset and no encoded rows. The code that selects an epoch, thresholds, teachers or settings takes only
    such rows, so these cannot be passed to it: only a trained run (`limbeck.run.train.Trained`) opens them.
    """

    _rows: EncodedRows

    @classmethod
    def taken_from(
        cls,
        splits: DatasetDict,
        task: Task,
        tokenizer: Processor,
        max_length: int,
        *,
        progress: bool,
    ) -> "FinalRows | None":
        """Take the test split out of `splits`, labelled or not; None if there is no labelled test split."""
        rows = splits.pop(TEST, None)
        if rows is None or task.label_column not in rows.column_names:
            return None
        return cls(EncodedRows.of(rows, task, tokenizer, max_length, progress=progress))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._rows.raw)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the rows' content."""
        return self._rows.fingerprint

    @property
    def truncated(self) -> int:
        """How many the length limit cut."""
        return self._rows.truncated or 0

    def to_check(self) -> dict[str, Dataset]:
        """The rows as they were loaded, by their name, for checks of rows before a run starts."""
        return {TEST: self._rows.raw}

    def when_trained(self, trained: Any) -> EncodedRows:
        """The rows, for a run in which nothing is left to choose."""
        return self._rows


SplitsToScore = Mapping[str, EncodedRows]
"""Splits to score by name."""

# The training rows and the teacher of one stage of a run. A stage owns its rows and its teacher:
# the teacher is bound to the rows, and finds its inputs in their batches. Later changes in a
# run (augmented examples, shares of several teachers, stored outputs) make new inputs out of
# these.


@dataclass(frozen=True)
class StageInputs:
    """Rows and teacher of one stage.

    stage: its number, with the recipe of this stage alone.
        stage: which one, with the recipe of this stage alone.
        rows: its training rows.
        readers: the teachers it may learn from, each bound to the rows.
        teacher: the teacher it learns from, one or a team; None if its terms use no teacher.
        own: it has a teacher of its own, different from the run's.
        holdout: training rows left out of training: the bandit that samples teachers learns on them.
        without_outputs: number of its own rows that were left out because stored teachers have no outputs for them.
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
        names = () if self.teacher is None else self.teacher.names
        members = zip(names, self.members, strict=True)
        return {f"teacher {name}".strip(): member.model for name, member in members}

    def collator(self, tokenizer: Processor) -> Collator:
        """Makes the stage's training batches."""
        return self.rows.collator(tokenizer, self.recipe.padded_width)

    def taught_by(self, teacher: Teacher | Team | None) -> "StageInputs":
        """The stage with this teacher or team, if its terms look at one; its members as they read the rows."""
        if teacher is None or not self.recipe.needs_teacher:
            return replace(self, teacher=None)
        bound = {id(one.teacher.model): one.teacher for one in self.readers}
        members = [bound.get(id(member.model), member) for member in teacher.members]
        return replace(self, teacher=teacher.answered_by(members))

    def on(self, rows: EncodedRows, bound: Mapping[int, Named]) -> "StageInputs":
        """The stage on other rows, with its teachers as they read those (`bound`, by id of their models)."""
        readers = tuple(bound.get(id(one.teacher.model), one) for one in self.readers)
        return replace(self, rows=rows, readers=readers).taught_by(self.teacher)

    def answered_from(self, stored: Mapping[int, Teacher]) -> "StageInputs":
        """The stage with outputs of its teachers stored: by place in the team who answers from disk."""
        if self.teacher is None or not stored:
            return self
        members = [stored.get(place, member) for place, member in enumerate(self.members)]
        return replace(self, teacher=self.teacher.answered_by(members))


@dataclass(frozen=True)
class Prepared:
    """Everything a run needs.

    Attributes:
        recipe: the run's.
        task: the task to predict.
        splits: the rows as they were loaded, without test rows.
        tokenizer: of images the image processor.
        student: the model that is trained.
        vocabulary: the cut of its tokenizer and embeddings; None if there is no cut.
        named: the teachers that the recipe names, the one or all of them, in its order; bound to the run's rows.
        dev: the dev splits, encoded; the task's first one selects the best epoch.
        final: the test rows, which select nothing; None if there are no labelled ones.
        stages: each stage's training rows and teacher.
        unlabelled: the treatment of the rows without a label.
        augmenter: makes augmented examples; None if none are requested, or they exist already.
        execution: the execution settings, as far as they are decided.
        reference: of `named` the one that the student is held against: of several the best.
        scored: by place in `named` a teacher's dev scores, as far as they are known.
        without_outputs: how many training rows were left out because stored teachers know nothing of them.
        floor: a linear model on words of the labeled training rows, once they are checked.
        in_train: by split how many scored rows are training rows too, once they are checked.
    """

    recipe: Recipe
    task: Task
    splits: DatasetDict
    tokenizer: Processor
    student: PreTrainedModel
    named: tuple[Named, ...]
    dev: Mapping[str, EncodedRows]
    stages: tuple[StageInputs, ...]
    final: FinalRows | None = None
    vocabulary: VocabularyFacts | None = None
    unlabelled: UnlabelledRows = field(default_factory=UnlabelledRows)
    augmenter: Any = None
    execution: Execution = field(default_factory=Execution)
    reference: int = 0
    scored: Mapping[int, Mapping[str, Numbers]] = field(default_factory=dict)
    without_outputs: int = 0
    floor: LinearFloor | None = None
    in_train: Mapping[str, int] = field(default_factory=dict)

    @property
    def last(self) -> StageInputs:
        """The inputs of the stage whose student is the run's."""
        return self.stages[-1]

    @property
    def train(self) -> EncodedRows:
        """The run's own training rows, on which its last stage trains."""
        return self.last.rows

    @property
    def truncated(self) -> dict[str, int]:
        """By split how many rows the length limit cut."""
        encoded = {**self.dev, "train": self.train}
        counts = {split: encoded[split].truncated for split in self.splits if split in encoded}
        if self.final is not None:
            counts[TEST] = self.final.truncated
        return {split: count for split, count in counts.items() if count is not None}

    @property
    def tokens(self) -> StudentTokens:
        """The student's tokenizer and rows, with which teachers' tokenizers are compared."""
        return StudentTokens(self.tokenizer, self.task, self.train.raw)

    @property
    def teacher(self) -> PreTrainedModel | None:
        """The model that the student is compared with; None if there are only its outputs, or no teacher."""
        if not self.named or self.named[self.reference].stored:
            return None
        found: PreTrainedModel | None = self.named[self.reference].teacher.model
        return found

    @property
    def selecting(self) -> Dataset:
        """The encoded split that selects the best epoch."""
        return self.dev[self.task.dev_splits[0]].encoded

    @property
    def collator(self) -> Collator:
        """Makes batches of the task's rows."""
        return Collator(self.tokenizer, kind=self.task.kind)

    def loaded_for(self, inputs: StageInputs) -> Named | None:
        """The teacher that one stage has and the run has not, if there is one."""
        known = {id(one.teacher.model) for one in self.named}
        loaded = [one for one in inputs.readers if id(one.teacher.model) not in known]
        return loaded[0] if inputs.own and loaded else None

    def compute_metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """The task's scores on the split that selects the best epoch, for the Trainer."""
        rows = self.dev[self.task.dev_splits[0]]
        return self.results(rows, np.asarray(prediction.predictions)).scores

    def results(self, rows: EncodedRows, outputs: np.ndarray) -> Results:
        """Scores and predictions of rows, from the outputs that the task type keeps of their batches."""
        of = ScoredSplit(rows.encoded, rows.raw, self.tokenizer)
        return self.task.kind.results(self.task, outputs, of)

    def deciding_by(self, thresholds: tuple[float, ...]) -> "Prepared":
        """The run with these thresholds of several labels a row, whatever rows are scored."""
        return replace(self, task=replace(self.task, thresholds=thresholds))

    def example_size(self) -> Size:
        """What FLOPs and latency are measured at: mean tokens of a dev example, or image size."""
        return example_size(self.selecting, self.tokenizer, self.task.kind)

    # ---- the same run with something else in it ----

    def following(self, recipe: Recipe) -> "Prepared":
        """The run by a recipe of the same rows, models and stages."""
        stages = zip(self.stages, recipe.stages(), strict=True)
        return replace(
            self,
            recipe=recipe,
            stages=tuple(replace(inputs, stage=stage) for inputs, stage in stages),
        )

    def on(self, rows: EncodedRows, *, progress: bool = False) -> "Prepared":
        """The run with other training rows, in every stage without rows of its own; bound to its teachers."""
        shared = [inputs for inputs in self.stages if inputs.stage.same_rows]
        own = [one for inputs in shared if (one := self.loaded_for(inputs)) is not None]
        tokens = replace(self.tokens, rows=rows.raw)
        rows, found = bound(rows, [*own, *self.named], tokens, own_tokens=True, progress=progress)
        readers = {id(one.teacher.model): one for one in found}
        stages = (
            inputs.on(rows, readers) if inputs.stage.same_rows else inputs for inputs in self.stages
        )
        return replace(
            self,
            stages=tuple(stages),
            named=tuple(readers[id(one.teacher.model)] for one in self.named),
        )

    def taught_by(self, teacher: Teacher | Team) -> "Prepared":
        """The run with others, or other shares, in every stage that has no teacher of its own."""
        stages = (inputs if inputs.own else inputs.taught_by(teacher) for inputs in self.stages)
        return replace(self, stages=tuple(stages))

    def read_by(self, one: Named) -> "Prepared":
        """The run with an additional teacher, bound to the rows of every stage that it may teach."""
        rows, (reader,) = bound(self.train, [one], self.tokens, own_tokens=True)
        stages = []
        for inputs in self.stages:
            own_rows, own_reader = rows, reader
            if not inputs.stage.same_rows and not inputs.own:
                own_rows, (own_reader,) = bound(inputs.rows, [one], self.tokens, own_tokens=False)
            elif not inputs.stage.same_rows:
                own_rows = inputs.rows
            more = () if inputs.own else (own_reader,)
            stages.append(replace(inputs, rows=own_rows, readers=(*inputs.readers, *more)))
        return replace(self, stages=tuple(stages))

    def holding_out(self, held: Dataset | LazyRows, trained: Dataset | LazyRows) -> "Prepared":
        """The run with some of its training rows to see its progress on, trained on the others."""
        rows, numbers = replace(self.train, encoded=trained), facts_of(trained).numbers
        assert numbers is not None  # every encoded row has one
        named = tuple(one.only(numbers.tolist()) for one in self.named)
        readers = {id(one.teacher.model): one for one in named}
        stages = (
            replace(inputs.on(rows, readers) if inputs.stage.same_rows else inputs, holdout=held)
            for inputs in self.stages
        )
        return replace(self, named=named, stages=tuple(stages))

    def scoring(self, place: int, scores: Mapping[str, Numbers]) -> "Prepared":
        """The run, knowing more dev scores of the teacher at a place of `named`."""
        known = {**self.scored.get(place, {}), **scores}
        return replace(self, scored={**self.scored, place: known})
