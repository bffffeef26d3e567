"""The scores of a checkpoint that is no run of limbeck's. Part of `limbeck.scoring`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import PreTrainedModel

from limbeck import preflight
from limbeck.data import Collator, Division, Labelling, RowsAsked, encode, load_task
from limbeck.embedding import modules_of
from limbeck.recipe import Recipe
from limbeck.run.known_classes import labelling_of, names_at
from limbeck.run.model_predictions import compact_outputs_of, decided_by
from limbeck.run.run_folder import RunFolder
from limbeck.students import load_model, read_config, read_processor
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.given import refuse_absent_rows
from limbeck.tasks import (
    SENTENCE,
    TASKS,
    Processor,
    Results,
    Task,
    TaskType,
    as_kind,
    get_task,
    kind_of_config,
)
from limbeck.tasks.metrics import TEACHER_LABEL

# Which split of loaded rows is scored, and what came of it.


@dataclass(frozen=True)
class Scored:
    """A split of a task's rows, as loaded, with a model's scores and predictions."""

    task: Task
    split: str
    rows: Dataset
    results: Results


def split_to_score(task: Task, rows: Mapping[str, Dataset], split: str | None) -> str:
    """The split that is named, or the one that the task is scored on.

    Raises:
        LimbeckError: there is none of that name, or it has no labels.
    """
    chosen = split or (task.evaluation_splits(rows) or tuple(rows))[0]
    if chosen not in rows:
        raise LimbeckError(unknown("split", chosen, list(rows)))
    if task.label_column not in rows[chosen].column_names:
        raise LimbeckError(
            f"split {chosen!r} of {task.name} has no labels",
            "name another split, or add --predictions FILE to predict it",
        )
    return chosen


# A model without a limit, or one of thousands of tokens, is measured on texts this long.
LONGEST = 512
HUB = "hub"
"""Where a known task's rows are, if nobody says."""


def score_checkpoint(path: str, asked: RowsAsked) -> Scored:
    """A fine-tuned model's predictions by its own tokenizer, on a task's rows or a user's own.

    Raises:
        LimbeckError: no such checkpoint, no task named, rows or classes that do not fit the model.
    """
    config = read_config(path)
    if asked.task is None and asked.data is None:
        raise LimbeckError(
            f"evaluate: {path} is no run of limbeck's, and a checkpoint does not say what to score it on",
            "add --task and --data, say --task mrpc --data glue, or --data FILE with its columns",
        )
    kind = kind_of_config(config)
    target, rows = load_task(
        asked.task,
        asked.data or HUB,
        text_columns=asked.text_columns,
        label_column=asked.label_column,
        kind=wanted_kind(kind, asked.task),
        labelling=Labelling(teacher=names_at(path)),
        for_training=False,
    )
    chosen = split_to_score(target, rows, asked.split)
    return Scored(
        target, chosen, rows[chosen], checkpoint_results(path, target, rows[chosen], chosen)
    )


def checkpoint_results(
    path: str,
    target: Task,
    rows: Dataset,
    split: str,
    *,
    side: str = "model",
    max_length: int | None = None,
) -> Results:
    """Scores and predictions of a fine-tuned model on rows of a split, cut to `max_length` tokens.

    Of an embedding model to as many as its folder says.

    Raises:
        LimbeckError: no such checkpoint, or classes that do not fit the rows.
    """
    model = load_model(path, head="required", auto=target.kind.auto)
    unproven = class_names(target, model, side=side)
    target = decided_by(target, model.config)
    tokenizer = read_processor(path, target.kind.reads)
    preflight.refuse_unfit(path, model, tokenizer)
    length = target.kind.scored_length(max_length or longest_of(model, tokenizer))
    length = min(length, preflight.positions_of(model) or length)
    encoded, _ = encode(rows, target, tokenizer, length)
    outputs = compact_outputs_of(model, encoded, Collator(tokenizer, kind=target.kind))
    resolve_class_order(target, unproven, outputs, rows[target.label_column][:], split, side=side)
    return target.kind.results(target, outputs, encoded, rows, tokenizer)


def wanted_kind(kind: TaskType, task: str | None) -> str | None:
    """The kind to read rows as: a known task has its own, which a text-to-text model may answer in words."""
    if task in TASKS:
        return kind.name if kind.classes_as_text else None
    return None if kind is SENTENCE else kind.name


def longest_of(model: PreTrainedModel, processor: Processor) -> int:
    """Tokens of a text that a checkpoint is measured on: of an embedding model as its folder says, of others as its
    tokenizer does, at most 512."""
    modules = modules_of(model.config)
    own = getattr(processor, "model_max_length", None) or LONGEST
    longest = (None if modules is None else modules.max_tokens) or min(own, LONGEST)
    return min(preflight.positions_of(model) or longest, longest)


# What a finished run was trained to predict, with its student's order of the classes.


def student_labelling(recipe: Recipe, student: str | Path) -> Labelling:
    """Classes in the order of the student's head, whatever became of its teacher."""
    alone = recipe.model_copy(update={"teacher": None, "teachers": None})
    return replace(labelling_of(alone), teacher=names_at(student))


def rows_of_run(
    recipe: Recipe, student: str | Path, asked: RowsAsked, *, elsewhere: Labelling
) -> tuple[Task, DatasetDict, RowsAsked]:
    """The rows that are named, else those that a run by the recipe was scored on.

    Args:
        student: the run's, whose head has the classes in its order.
        elsewhere: what is known of the classes of another task than the run's.

    Returns:
        Their task and splits; and what was asked, with what the recipe says of the rest.
    """
    own = asked.task in (None, recipe.task)
    # Rows of another file have labels of their own, and no teacher's.
    labelled = own and (asked.data is None or recipe.label_column != TEACHER_LABEL)
    wanted = replace(
        asked,
        task=asked.task or recipe.task,
        data=str(asked.data or recipe.data),
        text_columns=asked.text_columns or (recipe.text_columns if own else None),
        label_column=asked.label_column or (recipe.label_column if labelled else None),
    )
    refuse_absent_rows(str(wanted.data))
    # The split that the run drew from a single file of its own is drawn again the same way.
    drawn = own and asked.data is None
    task, splits = load_task(
        wanted.task,
        str(wanted.data),
        text_columns=wanted.text_columns,
        label_column=wanted.label_column,
        kind=recipe.kind if own or recipe.kind == "text" else None,
        labelling=student_labelling(recipe, student) if own else elsewhere,
        for_training=drawn,
        max_rows=recipe.max_rows,
        division=recipe.division if drawn else Division(),
    )
    return task, splits, wanted


def own_task(recipe: Recipe, folder: RunFolder) -> Task:
    """The task that the run was trained on, of a user's own file as the file has it."""
    if recipe.task not in TASKS or recipe.text_columns or recipe.label_column:
        task, _ = load_task(
            recipe.task,
            recipe.data,
            text_columns=recipe.text_columns,
            label_column=recipe.label_column,
            kind=recipe.kind,
            labelling=student_labelling(recipe, folder.student),
            max_rows=recipe.max_rows,
            division=recipe.division,
        )
        return task
    return as_kind(get_task(str(recipe.task)), recipe.kind)


# Whether a model that is to be scored has the classes of the rows, in their order.


logger = logging.getLogger(__name__)


def class_names(task: Task, model: PreTrainedModel, *, side: str) -> list[Problem]:
    """Names that prove nothing about the order of the classes, as warnings.

    Raises:
        LimbeckError: another number of classes than the rows', or a class of theirs at another output.
    """
    found = preflight.check_labels(side, model.config, task)
    if errors := preflight.errors_of(found):
        raise LimbeckError(errors)
    return found


def resolve_class_order(
    task: Task,
    unproven: Sequence[Problem],
    outputs: np.ndarray,
    labels: Sequence[Any],
    split: str,
    *,
    side: str,
) -> None:
    """Say what `class_names` could not prove, if the outputs are in the order of the rows' classes.

    Raises:
        LimbeckError: they fit another order much better.
    """
    if not unproven:
        return
    given = preflight.TeacherOutputs(outputs, labels, f"measured on {split}")
    if found := preflight.check_class_order(task, given, side=side):
        raise LimbeckError(found)
    for problem in unproven:
        logger.warning("%s (%s)", problem.message, problem.fix)
