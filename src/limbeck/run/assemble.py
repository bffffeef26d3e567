"""From a recipe to the things it names: examples, tokenizer, teacher, student.

Part of `limbeck.run`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import EvalPrediction, PreTrainedModel

from limbeck.data import Collator, encode, rows_fingerprint
from limbeck.errors import LimbeckError, Problem, unknown
from limbeck.evaluation import Size
from limbeck.lab.augmentation import Augmenter
from limbeck.recipe import Recipe, Stage
from limbeck.reporting.records import Numbers
from limbeck.run.augmenting import augmented, load_augmenter
from limbeck.run.labelling import names_at, names_for_students
from limbeck.run.named_teachers import (
    Named,
    form_team,
    lead_model,
    learns_from_its_teacher,
    named_teachers,
)
from limbeck.run.predictions import example_size
from limbeck.run.stage_rows import StageRows, load_rows, stage_rows
from limbeck.run.student_source import Start, processor_of, start_of
from limbeck.run.student_start import start_problems
from limbeck.run.teacher_tokenization import give_all_inputs, with_inputs
from limbeck.students import build_student, load_model
from limbeck.tasks import Processor, Results, Task
from limbeck.teachers import SampledSpec, Team
from limbeck.teachers.teacher import Teacher
from limbeck.training import tracker_problems
from limbeck.training.adaptive import hold_out


@dataclass
class Assembly:
    """Everything a run needs, loaded and tokenised."""

    task: Task
    rows: DatasetDict
    tokenizer: Processor
    """Of images the image processor."""
    student: PreTrainedModel
    live_teacher: Teacher | Team | None
    max_length: int
    named: list[Named] = field(default_factory=list)
    """The teachers that the recipe names, the one or all of them, in its order."""
    reference: int = 0
    """Of `named` the one that a student is held against: of several the best."""
    encoded: dict[str, Dataset] = field(default_factory=dict)
    truncated: dict[str, int] = field(default_factory=dict)
    first_rows: StageRows | None = None
    first_teacher: Teacher | None = None
    first_teacher_tokenizer: Processor | None = None
    augmenter: Augmenter | None = None
    """What is to make copies of the training rows."""
    copied: bool = False
    """Whether the training rows have copies behind them."""
    stored: dict[tuple[int, int], Teacher] = field(default_factory=dict)
    """By number of a stage and place in its team the teacher whose answers were stored for it."""
    scored: dict[int, dict[str, Numbers]] = field(default_factory=dict)
    """By place in `named` the dev scores of a teacher, once they are known."""
    holdout: Dataset | None = None
    """Training rows that nobody is trained on: whom to draw is learned on them."""

    def rows_of(self, stage: Stage) -> StageRows:
        """What a stage trains on."""
        if not stage.last and self.first_rows is not None:
            return self.first_rows
        return StageRows(self.encoded["train"], self.truncated["train"], self.task.kind)

    def teacher_of(self, stage: Stage) -> Teacher | Team | None:
        """Whom a stage learns from; None if its terms look at no teacher."""
        if not stage.recipe.needs_teacher:
            return None
        live = self.live_teacher
        if not stage.last and self.first_teacher is not None:
            live = self.first_teacher
        if live is None:
            return None
        answering = [
            self.stored.get((stage.number, place)) or self._for_rows(member, stage)
            for place, member in enumerate(live.members)
        ]
        return live.answered_by(answering)

    def _for_rows(self, member: Teacher, stage: Stage) -> Teacher:
        # One that remembers its answers by the rows' numbers would take other rows for its own.
        known_rows = stage.same_rows and not self.copied
        if known_rows:
            return member
        other = Teacher(member.model, dropout=member.dropout)
        if stage.same_rows:
            other.own_words, other.inputs = member.own_words, member.inputs
        elif self.first_rows is not None:
            other.inputs = self.first_rows.inputs.get(id(member.model))
        return other

    @property
    def teacher(self) -> PreTrainedModel | None:
        """The model that the student is held against."""
        return self.named[self.reference].teacher.model if self.named else None

    @property
    def dev(self) -> Dataset:
        """The split that selects the best epoch."""
        return self.encoded[self.task.dev_splits[0]]

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Which rows each dev split holds."""
        return {
            split: rows_fingerprint(self.task, self.rows[split])
            for split in self.task.dev_splits
            if split in self.rows
        }

    @property
    def collator(self) -> Collator:
        """Makes batches of the task's rows."""
        return Collator(self.tokenizer, kind=self.task.kind)

    def compute_metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """The task's scores on the dev split, for the Trainer."""
        return self.results(self.task.dev_splits[0], np.asarray(prediction.predictions)).scores

    def results(self, split: str, answers: np.ndarray) -> Results:
        """Scores and answers of a split, from what the kind keeps of its batches."""
        return self.task.kind.results(
            self.task, answers, self.encoded[split], self.rows[split], self.tokenizer
        )

    def example_size(self) -> Size:
        """What FLOPs and latency are measured at: mean tokens of a dev example, or image size."""
        return example_size(self.dev, self.tokenizer, self.task.kind)


def assemble(
    recipe: Recipe, live_teacher: Teacher | None = None, *, progress: bool = False
) -> Assembly:
    """Load what the recipe names; the teacher only if it is not given.

    Raises:
        LimbeckError: what is missing or does not fit, several problems at once where they are known.
    """
    problems = missing(recipe)
    if problems:
        raise LimbeckError(problems)
    task, rows = load_rows(recipe)
    augmenter = load_augmenter(recipe, task, rows["train"])
    named, student, tokenizer = build_models(recipe, task, live_teacher)
    assembly = Assembly(
        task=task,
        rows=rows,
        tokenizer=tokenizer,
        student=student,
        live_teacher=form_team(recipe, named),
        max_length=recipe.max_length,
        named=named,
        augmenter=augmenter,
    )
    tokenise = partial(encode, tokenizer=tokenizer, max_length=recipe.max_length, progress=progress)
    for split in rows:
        if split == "train" or split in task.dev_splits:
            assembly.encoded[split], assembly.truncated[split] = tokenise(rows[split], task)
    first = recipe.stages()[0]
    if not first.last:
        _add_first_stage(recipe, first, assembly, progress=progress)
    give_all_inputs(recipe, assembly, progress=progress)
    _hold_out(recipe, assembly)
    return assembly


def add_copies(recipe: Recipe, assembly: Assembly, *, show: bool = False) -> int:
    """Put augmented rows in the place of the training rows; returns how many there are more.

    Every stage that trains on these rows has the copies. What a first stage has for itself, another
    task's text or fewer rows, and the dev splits stay as they are.
    """
    if assembly.augmenter is None:
        return 0
    all_rows, before = assembly.rows["train"], assembly.encoded["train"]
    numbers, trained = all_rows["index"][:], set(before["index"][:])
    # Some rows may have been held out of training: no copies of them, and none with their numbers.
    rows = all_rows.select([place for place, number in enumerate(numbers) if number in trained])
    more = augmented(
        recipe, assembly.augmenter, assembly.task, rows, first=max(numbers) + 1, show=show
    )
    assembly.rows["train"], assembly.augmenter, assembly.copied = more, None, True
    assembly.encoded["train"], assembly.truncated["train"] = encode(
        more, assembly.task, assembly.tokenizer, recipe.max_length, progress=show
    )
    give_all_inputs(recipe, assembly, progress=show)
    return len(more) - len(before)


def build_models(
    recipe: Recipe, task: Task, live_teacher: Teacher | None = None
) -> tuple[list[Named], PreTrainedModel, Processor]:
    """The teachers that the recipe names, the student and what makes its input.

    Raises:
        LimbeckError: as `assemble`, but for the rows.
    """
    _check_selection(recipe, task)
    named = named_teachers(recipe, task, live_teacher)
    start = start_of(recipe, task)
    lead = lead_model(recipe, task, named)
    teacher = named[0].teacher.model if learns_from_its_teacher(recipe) and named else None
    student = _student(recipe, task, names_for_students(teacher, task), start, lead)
    return named, student, start.tokenizer


def _add_first_stage(recipe: Recipe, stage: Stage, assembly: Assembly, *, progress: bool) -> None:
    """Rows and teacher of a first stage that has its own."""
    path = stage.recipe.teacher
    alone = recipe.team is not None and stage.recipe.team is None
    if (path != recipe.teacher or alone) and stage.recipe.needs_teacher:
        known = next((one for one in assembly.named if one.path == path), None)
        if known is not None:
            assembly.first_teacher = known.teacher
        else:
            _load_first_teacher(recipe, stage, assembly)
    if not stage.same_rows:
        reads, length = assembly.task.kind.reads, stage.recipe.max_length
        rows, raw, task = stage_rows(stage, assembly.tokenizer, reads, progress=progress)
        assembly.first_rows = with_inputs(rows, raw, task, assembly, length, progress=progress)


def _load_first_teacher(recipe: Recipe, stage: Stage, assembly: Assembly) -> None:
    path, auto = str(stage.recipe.teacher), assembly.task.kind.auto
    # Pretrained encoders teach too, as long as no term asks for their answers.
    terms = stage.recipe.objectives.values()
    answers = any(term.reads_logits and term.needs_teacher for term in terms)
    model = load_model(path, head="required" if answers else "optional", auto=auto)
    assembly.first_teacher = Teacher(model, dropout=recipe.teacher_dropout)
    assembly.first_teacher_tokenizer = processor_of(recipe, assembly.task, path)


def _hold_out(recipe: Recipe, assembly: Assembly) -> None:
    """Take rows out of the training split for a team that learns whom to draw."""
    if not isinstance(recipe.team, SampledSpec) or recipe.team.by != "adaptive":
        return
    assembly.holdout, trained = hold_out(
        assembly.encoded["train"], recipe.team.holdout, recipe.seed
    )
    assembly.encoded["train"] = trained
    for one in assembly.named:
        if one.teacher.own_words is not None:
            one.teacher.own_words = one.teacher.own_words.only(trained["index"][:])


def missing(recipe: Recipe) -> list[Problem]:
    """Settings a run cannot do without."""
    problems = []
    if recipe.task is None:
        problems.append(Problem("task: none is given", "add --task mrpc, or task: in the recipe"))
    if recipe.team is not None and recipe.teachers is None:
        problems.append(
            Problem(
                f"teachers: method {recipe.method} learns from several, and none are given",
                "add --teachers FOLDER FOLDER …; `limbeck finetune` makes them",
            )
        )
    if recipe.team is None and learns_from_its_teacher(recipe) and recipe.teacher is None:
        problems.append(
            Problem(
                f"teacher: method {recipe.method} learns from one, and none is given",
                "add --teacher FOLDER; `limbeck finetune` makes one",
            )
        )
    if recipe.student.from_teacher and recipe.lead is None:
        problems.append(
            Problem(
                f"student.init: {recipe.student.init} needs a teacher, and none is given",
                "add --teacher FOLDER, or start from a checkpoint: --student FOLDER",
            )
        )
    return problems + start_problems(recipe) + tracker_problems(recipe.trackers)


def _check_selection(recipe: Recipe, task: Task) -> None:
    choices = ("primary", *task.metrics)
    if recipe.select_by not in choices:
        raise LimbeckError(unknown("select_by", recipe.select_by, choices))


def _student(
    recipe: Recipe, task: Task, names: Task, start: Start, teacher: PreTrainedModel | None
) -> PreTrainedModel:
    """The student, its classes called as in `names`: a head that knows them by either name is kept."""
    spec = recipe.student
    renamed = names is not task and not spec.from_teacher
    own = names_at(start.init) if renamed and isinstance(start.init, str) else ()
    student = build_student(
        start.init,
        task=task if own == task.labels else names,
        layers=spec.layers,
        pick=spec.pick,
        config=spec.config,
        teacher=teacher,
        seed=recipe.seed,
        kind=task.kind,
    )
    if names is not task:
        student.config.id2label = dict(enumerate(names.labels))
        student.config.label2id = {name: number for number, name in enumerate(names.labels)}
    return student
