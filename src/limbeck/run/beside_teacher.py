"""A finished student's predictions beside its teacher's, on every split that is scored. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from datasets import Dataset

from limbeck.evaluation.classification import task_classification
from limbeck.evaluation.kept_share import kept_share
from limbeck.evaluation.row_tests import row_tests
from limbeck.records import ClassificationScores, FloorFacts, KeptFacts, Numbers, RowTests
from limbeck.run.final_rows import SplitsToScore
from limbeck.run.prepared import Prepared
from limbeck.run.run_floor import floor_facts
from limbeck.run.run_folder import kept_by_its_run
from limbeck.tasks import Task
from limbeck.tasks.metrics import is_agreement

ByRow = Mapping[str, Sequence[Any]]
"""Predictions of one split, as a task type keeps them."""
Predictions = Mapping[str, ByRow]
"""Split → predictions by row."""


@dataclass(frozen=True)
class BesideTeacher:
    """What the predictions of student and teacher come to; by split, but for the share kept."""

    kept: KeptFacts | None = None
    classification: dict[str, ClassificationScores] = field(default_factory=dict)
    row_tests: dict[str, RowTests] = field(default_factory=dict)
    floor: FloorFacts | None = None


def beside_teacher(
    prepared: Prepared,
    scored: SplitsToScore,
    scores: Mapping[str, Numbers],
    predictions: Predictions,
    teacher_scores: Mapping[str, Numbers],
    measured: Predictions,
) -> BesideTeacher:
    """The share of the teacher's primary score on the split that selects; counts, tests and the floor on all splits.

    `measured`: the teacher's own predictions on splits that it was run on for this; of others its
    run may have kept them.
    """
    task = prepared.task
    taught = {
        split: _teachers(prepared, scored, split, student, measured)
        for split, student in predictions.items()
        if teacher_scores.get(split)
    }
    rows = {split: scored.rows[split].raw for split in predictions}
    found = BesideTeacher(floor=floor_facts(prepared, rows, predictions, taught))
    for split, student in predictions.items():
        teacher = taught.get(split)
        texts = kept_texts(task, scored.rows[split].raw) if prepared.recipe.keep_texts else None
        classes = task_classification(task, student, teacher, texts)
        if classes is not None:
            found.classification[split] = classes
        # Labels that are the teacher's own predictions leave nothing to test it on.
        if teacher is not None and not is_agreement(task.primary):
            found.row_tests[split] = row_tests(task, student, teacher)
    if is_agreement(task.primary):
        return found
    split = task.dev_splits[0]
    own = scores.get(split, {}).get("primary")
    theirs = teacher_scores.get(split, {}).get("primary")
    if own is None or theirs is None:
        return found
    kept = kept_share(task, predictions[split], taught.get(split), (own, theirs))
    return replace(found, kept=kept)


def kept_texts(task: Task, rows: Dataset) -> dict[str, Sequence[Any]] | None:
    """The text columns of rows; None where an example is no text."""
    if not task.kind.labels_examples or not task.kind.reads.in_columns:
        return None
    return {name: rows[name] for name in task.text_columns}


def _teachers(
    prepared: Prepared, scored: SplitsToScore, split: str, student: ByRow, measured: Predictions
) -> ByRow | None:
    """The teacher's predictions on a split, measured or kept by its run; None unless of the very same rows."""
    found = measured.get(split) or kept_by_its_run(
        prepared.named[prepared.reference].path, prepared.task, split, scored.fingerprints[split]
    )
    return found if found is not None and list(found["label"]) == list(student["label"]) else None
