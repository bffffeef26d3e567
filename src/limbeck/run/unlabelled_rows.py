"""Training rows without labels of a run: the files that its recipe names, and which terms may learn from them.

Part of `limbeck.run`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
from datasets import Dataset, DatasetDict

from limbeck.data.samplers import labelled_in_batch
from limbeck.data.unlabelled import UnlabelledRows, read_unlabelled, with_unlabelled
from limbeck.objectives import TermSpec
from limbeck.recipe import Recipe
from limbeck.recipe.checks import label_terms
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import Task
from limbeck.tasks.known_types import labelled_rows, no_unlabelled

logger = logging.getLogger(__name__)


def add_unlabelled(
    recipe: Recipe, task: Task, splits: DatasetDict
) -> tuple[DatasetDict, UnlabelledRows]:
    """The splits with all rows to train on, and what became of those without a label.

    Where every term of the loss reads labels, rows of the task's own data that have none are left out.

    Raises:
        LimbeckError: files that cannot be read, rows that are scored on too, terms that have nothing to learn from, a
            task type that needs labels.
    """
    refused = no_unlabelled(task.kind)
    if refused is not None:
        if recipe.unlabelled:
            raise LimbeckError(
                f"unlabelled: task {task.name!r} is of kind {task.kind.name}: {refused.why}",
                f"{refused.instead}; or leave them out",
            )
        need_labels(task, splits["train"])
        return splits, UnlabelledRows()
    labelled = labelled_rows(splits["train"].with_format("numpy")[task.label_column][:])
    if recipe.labelled_share is not None:
        _check_share(recipe, labelled)
    if labelled.all() and not recipe.unlabelled:
        if recipe.unlabelled_weight != 1:
            raise LimbeckError(
                f"unlabelled_weight: {recipe.unlabelled_weight:g}, and all training rows have a label",
                "leave it out, or add rows: --unlabelled FILE",
            )
        return splits, UnlabelledRows()
    terms = list(_terms(recipe, numbers=task.regression))
    problems = _problems(recipe, task, terms, some=bool(labelled.any()))
    if problems:
        raise LimbeckError(problems)
    if all(reads for _, _, reads in terms):
        logger.warning(
            "%d of %d training rows have no label and are left out: every term of method %s reads labels",
            int((~labelled).sum()), len(labelled), recipe.method,
        )  # fmt: skip
        splits = DatasetDict(splits)
        splits["train"] = splits["train"].select(np.flatnonzero(labelled))
        return splits, UnlabelledRows()
    files = read_unlabelled(
        recipe.unlabelled, task, text_columns=recipe.text_columns, max_rows=recipe.max_rows
    )
    return with_unlabelled(task, splits, files, recipe.unlabelled_duplicates)


def check_left(recipe: Recipe, task: Task, labelled: np.ndarray) -> None:
    """Raise LimbeckError where `missing_outputs: drop` has left no row of a sort that terms or batches need.

    Args:
        labelled: of the training rows that are left, boolean (n,), which have a label.
    """
    reading = [
        key
        for key, term, reads in _terms(recipe, numbers=task.regression)
        if reads and term.weight != 0
    ]
    mixed = ["labelled_share"] if recipe.labelled_share is not None else []
    if not labelled.any() and reading + mixed:
        raise LimbeckError(
            f"missing_outputs: drop leaves no row with a label, which {', '.join(reading + mixed)} needs",
            "label those rows with the teacher too, or take a method that reads no labels: --method kd-soft",
        )
    if labelled.all() and mixed:
        raise LimbeckError(
            "missing_outputs: drop leaves no row without a label, which labelled_share needs",
            "label those rows with the teacher too, or leave labelled_share out",
        )


def need_labels(task: Task, rows: Dataset, setting: str = "") -> None:
    """Raise LimbeckError for training rows without a label of a task whose labels a decoder reads.

    Args:
        setting: whose rows they are, as `first_stage: `.
    """
    refused = no_unlabelled(task.kind)
    if refused is None or not task.kind.classes_as_text:
        return
    missing = int((~labelled_rows(rows.with_format("numpy")[task.label_column][:])).sum())
    if missing:
        raise LimbeckError(
            f"{setting}task {task.name!r}: {missing} of {len(rows)} training rows have no label, and "
            f"{refused.why}",
            "label them or take them out",
        )


def _check_share(recipe: Recipe, labelled: np.ndarray) -> None:
    """Raise LimbeckError for a share of batches that cannot be had."""
    for stage in recipe.stages():
        if stage.same_rows:
            labelled_in_batch(recipe.labelled_share or 0.0, stage.recipe.batch_size)
    some = labelled.any(), bool(recipe.unlabelled) or not labelled.all()
    if not all(some):
        raise LimbeckError(
            f"labelled_share: {recipe.labelled_share:g}, and {'all' if some[0] else 'no'} training rows have a label",
            "leave it out, or add rows" + (": --unlabelled FILE" if some[0] else " with labels"),
        )


def _terms(recipe: Recipe, *, numbers: bool) -> Iterator[tuple[str, TermSpec, bool]]:
    """Every term that sees the run's own rows: its key, its settings, and whether it reads labels."""
    for stage in recipe.stages():
        if not stage.same_rows:
            continue
        reading = set(label_terms(stage.recipe.objectives, numbers=numbers))
        for name, term in stage.recipe.objectives.items():
            yield f"{stage.setting}objectives.{name}", term, name in reading


def _problems(
    recipe: Recipe, task: Task, terms: list[tuple[str, TermSpec, bool]], *, some: bool
) -> list[Problem]:
    """Why these terms cannot be trained beside rows without a label; `some` rows have one."""
    reading, advised = [(key, term) for key, term, reads in terms if reads], task.kind.distilled_by
    if len(reading) == len(terms) and recipe.unlabelled:
        return [
            Problem(
                f"unlabelled: every term of method {recipe.method} reads labels, so rows without teach nothing",
                f"leave it out, or take a method with soft labels or layers: limbeck distill --method {advised}",
            )
        ]
    if (
        not some
        and recipe.unlabelled_weight == 0
        and all(term.weighs_examples for _, term, _ in terms)
    ):
        return [
            Problem(
                "unlabelled_weight: 0, and no training row has a label, so that none would count",
                "raise it, or leave it out",
            )
        ]
    if not some:
        return [
            Problem(
                f"{key}: it learns from labels, and no training row has one",
                f"take a method without it (--method kd-soft), or take it out: {key}=null",
            )
            for key, term in reading
            if term.weight != 0
        ]
    return [
        Problem(
            f"{key}: {term.compare} reads the label of every example, and some have none",
            "take it out, leave rows without labels out, or let its class count labelled examples alone "
            "(counts_labelled = True)",
        )
        for key, term in reading
        if not term.counts_labelled
    ]
