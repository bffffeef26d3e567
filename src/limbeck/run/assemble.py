"""From a recipe to the things it names: examples, tokenizer, teacher, student.

Part of `limbeck.run`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import EvalPrediction, PreTrainedModel

from limbeck.data import Collator, Task, encode
from limbeck.errors import LimbeckError, Problem, unknown
from limbeck.evaluation import Pixels, Size
from limbeck.kinds import IMAGE, Processor, Results
from limbeck.objectives import SoftSpec
from limbeck.recipe import Recipe, Stage
from limbeck.run.rows import Rows, load_rows, stage_rows
from limbeck.students import build_student, load_model, resolve_checkpoint
from limbeck.teachers import Teacher
from limbeck.vision import SHAPES, configuration_of, image_processor, side_of, with_side


@dataclass
class Assembly:
    """Everything a run needs, loaded and tokenised."""

    task: Task
    rows: DatasetDict
    tokenizer: Processor
    """Of images the image processor."""
    student: PreTrainedModel
    live_teacher: Teacher | None
    teacher_tokenizer: Processor | None
    encoded: dict[str, Dataset] = field(default_factory=dict)
    truncated: dict[str, int] = field(default_factory=dict)
    first_rows: Rows | None = None
    first_teacher: Teacher | None = None
    first_teacher_tokenizer: Processor | None = None
    stored: dict[int, Teacher] = field(default_factory=dict)
    """By number of a stage the teacher whose answers were stored for it."""

    def rows_of(self, stage: Stage) -> Rows:
        """What a stage trains on."""
        if not stage.last and self.first_rows is not None:
            return self.first_rows
        return Rows(self.encoded["train"], self.truncated["train"], self.task.kind)

    def teacher_of(self, stage: Stage) -> Teacher | None:
        """Whom a stage learns from; None if its terms look at no teacher."""
        if not stage.recipe.needs_teacher:
            return None
        if stage.number in self.stored:
            return self.stored[stage.number]
        if not stage.last and self.first_teacher is not None:
            return self.first_teacher
        if stage.same_rows or self.live_teacher is None:
            return self.live_teacher
        # One that remembers its answers by the rows' numbers would take other rows for its own.
        return Teacher(self.live_teacher.model, dropout=self.live_teacher.dropout)

    @property
    def teacher(self) -> PreTrainedModel | None:
        """The teacher's model."""
        return None if self.live_teacher is None else self.live_teacher.model

    @property
    def dev(self) -> Dataset:
        """The split that selects the best epoch."""
        return self.encoded[self.task.dev_splits[0]]

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
        lengths = self.task.kind.reads.lengths(self.dev)
        if lengths is None:
            return Pixels(*side_of(self.tokenizer))
        return max(round(float(np.mean(lengths))), 1)


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
    _check_selection(recipe, task)
    _check_start(recipe, task)
    teacher = live_teacher or _teacher(recipe, task)
    tokenizer = _tokenizer(recipe, task, recipe.student.init)
    student = _student(recipe, task, tokenizer, None if teacher is None else teacher.model)
    assembly = Assembly(
        task=task,
        rows=rows,
        tokenizer=tokenizer,
        student=student,
        live_teacher=teacher,
        teacher_tokenizer=_tokenizer(recipe, task, "teacher") if teacher is not None else None,
    )
    tokenise = partial(encode, tokenizer=tokenizer, max_length=recipe.max_length, progress=progress)
    for split in rows:
        if split == "train" or split in task.dev_splits:
            assembly.encoded[split], assembly.truncated[split] = tokenise(rows[split], task)
    first = recipe.stages()[0]
    if not first.last:
        _add_first_stage(recipe, first, assembly, progress=progress)
    return assembly


def _add_first_stage(recipe: Recipe, stage: Stage, assembly: Assembly, *, progress: bool) -> None:
    """Rows and teacher of a first stage that has its own."""
    if not stage.same_rows:
        assembly.first_rows = stage_rows(
            stage, assembly.tokenizer, assembly.task.kind.reads, progress=progress
        )
    path = stage.recipe.teacher
    if path != recipe.teacher and stage.recipe.needs_teacher:
        # Pretrained encoders teach too, as long as no term asks for their answers.
        answers = any(isinstance(term, SoftSpec) for term in stage.recipe.objectives.values())
        auto = assembly.task.kind.auto
        model = load_model(str(path), head="required" if answers else "optional", auto=auto)
        assembly.first_teacher = Teacher(model, dropout=recipe.teacher_dropout)
        reads = assembly.task.kind.reads
        assembly.first_teacher_tokenizer = reads.load(resolve_checkpoint(str(path)))


def learns_from_its_teacher(recipe: Recipe) -> bool:
    """Whether a stage learns from the run's own teacher: not if the only one that does has another."""
    return any(
        stage.recipe.needs_teacher and stage.recipe.teacher == recipe.teacher
        for stage in recipe.stages()
    )


def missing(recipe: Recipe) -> list[Problem]:
    """Settings a run cannot do without."""
    problems = []
    if recipe.task is None:
        problems.append(Problem("task: none is given", "add --task mrpc, or task: in the recipe"))
    if learns_from_its_teacher(recipe) and recipe.teacher is None:
        problems.append(
            Problem(
                f"teacher: method {recipe.method} learns from one, and none is given",
                "add --teacher FOLDER; `limbeck finetune` makes one",
            )
        )
    if recipe.student.init in ("teacher", "fresh") and recipe.teacher is None:
        problems.append(
            Problem(
                f"student.init: {recipe.student.init} needs a teacher, and none is given",
                "add --teacher FOLDER, or start from a checkpoint: --student FOLDER",
            )
        )
    return problems


def _check_selection(recipe: Recipe, task: Task) -> None:
    choices = ("primary", *task.metrics)
    if recipe.select_by not in choices:
        raise LimbeckError(unknown("select_by", recipe.select_by, choices))


def _check_start(recipe: Recipe, task: Task) -> None:
    """Raise for a student of its own name that reads something else than the task's rows."""
    init = recipe.student.init
    named = {"pocket": "text"} | dict.fromkeys(SHAPES, IMAGE.reads.name)
    if init in named and named[init] != task.kind.reads.name:
        raise LimbeckError(
            f"student.init: {init} reads {named[init]}, and the rows of {task.name} are "
            f"{task.kind.reads.name}",
            "start from a checkpoint that reads them, or from one of "
            f"{', '.join(name for name, reads in named.items() if reads == task.kind.reads.name)}",
        )


def _teacher(recipe: Recipe, task: Task) -> Teacher | None:
    if not learns_from_its_teacher(recipe) and recipe.student.init not in ("teacher", "fresh"):
        return None
    model = load_model(
        str(recipe.teacher),
        regression=task.regression and task.kind.constant,
        head="required",
        auto=task.kind.auto,
    )
    return Teacher(model, dropout=recipe.teacher_dropout)


def _student(
    recipe: Recipe, task: Task, tokenizer: Processor, teacher: PreTrainedModel | None
) -> PreTrainedModel:
    spec = recipe.student
    init: Any = spec.init
    if init == "pocket":
        from limbeck.data import pocket

        init = pocket.config_of(task)
    elif init in SHAPES:
        init = configuration_of(init, image_size=side_of(tokenizer)[0])
    return build_student(
        init,
        task=task,
        layers=spec.layers,
        pick=spec.pick,
        config=spec.config,
        teacher=teacher,
        seed=recipe.seed,
        kind=task.kind,
    )


def _tokenizer(recipe: Recipe, task: Task, init: str) -> Processor:
    """What makes the input of a model that starts from `init`; a named net reads as its teacher."""
    if init == "pocket":
        from limbeck.data import pocket

        return pocket.tokenizer_of(task)
    net = init in SHAPES
    if net and recipe.teacher is None:
        processor: Processor = image_processor(task.pictures.side, task.pictures.normalisation)
    else:
        source = recipe.teacher if net or init in ("teacher", "fresh") else init
        processor = task.kind.reads.load(resolve_checkpoint(str(source)))
    if recipe.images is not None and recipe.images.size is not None:
        processor = with_side(processor, recipe.images.size)
    return processor
