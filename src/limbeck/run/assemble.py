"""From a recipe to the things it names: examples, tokenizer, teacher, student.

Part of `limbeck.run`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import (
    AutoTokenizer,
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from limbeck.data import Task, encode, load_task
from limbeck.errors import LimbeckError, Problem, unknown
from limbeck.recipe import Recipe
from limbeck.students import build_student, load_model, resolve_checkpoint
from limbeck.teachers import Teacher

_TRAIN_ROWS_SEED = 0


@dataclass
class Assembly:
    """Everything a run needs, loaded and tokenised."""

    task: Task
    rows: DatasetDict
    tokenizer: PreTrainedTokenizerBase
    student: PreTrainedModel
    live_teacher: Teacher | None
    teacher_tokenizer: PreTrainedTokenizerBase | None
    encoded: dict[str, Dataset] = field(default_factory=dict)
    truncated: dict[str, int] = field(default_factory=dict)

    @property
    def teacher(self) -> PreTrainedModel | None:
        """The teacher's model."""
        return None if self.live_teacher is None else self.live_teacher.model

    @property
    def dev(self) -> Dataset:
        """The split that selects the best epoch."""
        return self.encoded[self.task.dev_splits[0]]

    def compute_metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """The task's scores, for the Trainer."""
        return self.task.scores(
            np.asarray(prediction.predictions), np.asarray(prediction.label_ids)
        )

    def mean_tokens(self) -> int:
        """Mean length of a dev example, the length FLOPs and latency are measured at."""
        return max(round(float(np.mean([len(ids) for ids in self.dev["input_ids"]]))), 1)


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
    teacher = live_teacher or _teacher(recipe, task)
    student = _student(recipe, task, None if teacher is None else teacher.model)
    tokenizer = _tokenizer(recipe, task, recipe.student.init)
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
    return assembly


def missing(recipe: Recipe) -> list[Problem]:
    """Settings a run cannot do without."""
    problems = []
    if recipe.task is None:
        problems.append(Problem("task: none is given", "add --task mrpc, or task: in the recipe"))
    if recipe.needs_teacher and recipe.teacher is None:
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


def load_rows(recipe: Recipe) -> tuple[Task, DatasetDict]:
    """The task and its splits, the training split cut to `train_rows`."""
    task, rows = load_task(
        recipe.task,
        recipe.data,
        text_columns=recipe.text_columns,
        label_column=recipe.label_column,
    )
    absent = [split for split in ("train", task.dev_splits[0]) if split not in rows]
    if absent:
        raise LimbeckError(
            f"task {task.name!r}: the data have no {' and no '.join(absent)} split "
            f"(there: {', '.join(rows)})",
            "training needs both",
        )
    wanted = recipe.train_rows
    if wanted is not None:
        if wanted > len(rows["train"]):
            raise LimbeckError(
                f"train_rows: {wanted} of {len(rows['train'])} training rows", "ask for fewer"
            )
        rows["train"] = rows["train"].shuffle(seed=_TRAIN_ROWS_SEED).select(range(wanted))
    return task, rows


def _check_selection(recipe: Recipe, task: Task) -> None:
    choices = ("primary", *task.metrics)
    if recipe.select_by not in choices:
        raise LimbeckError(unknown("select_by", recipe.select_by, choices))


def _teacher(recipe: Recipe, task: Task) -> Teacher | None:
    if not recipe.needs_teacher and recipe.student.init not in ("teacher", "fresh"):
        return None
    model = load_model(str(recipe.teacher), regression=task.regression, head="required")
    return Teacher(model)


def _student(recipe: Recipe, task: Task, teacher: PreTrainedModel | None) -> PreTrainedModel:
    spec = recipe.student
    init: Any = spec.init
    if init == "pocket":
        from limbeck.data import pocket

        init = pocket.teacher_config(task.outputs, pair=_is_pair(task))
    return build_student(
        init,
        task=task,
        layers=spec.layers,
        pick=spec.pick,
        config=spec.config,
        teacher=teacher,
        seed=recipe.seed,
    )


def _tokenizer(recipe: Recipe, task: Task, init: str) -> PreTrainedTokenizerBase:
    if init == "pocket":
        from limbeck.data import pocket

        return pocket.tokenizer(pair=_is_pair(task))
    source = recipe.teacher if init in ("teacher", "fresh") else init
    return AutoTokenizer.from_pretrained(resolve_checkpoint(str(source)), trust_remote_code=False)


def _is_pair(task: Task) -> bool:
    return len(task.text_columns) == 2
