"""A finished student's predictions beside its teacher's and the floor's, on every split. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from limbeck.activations import Request
from limbeck.data import batches_of
from limbeck.data.row_facts import facts_of
from limbeck.evaluation.classification import task_classification
from limbeck.evaluation.linear_floor import MOST_ROWS, LinearFloor, fit_floor, has_floor
from limbeck.evaluation.row_tests import is_ahead, kept_share, row_tests
from limbeck.preflight import TeacherOutputs, ask_teacher
from limbeck.records.facts import ClassificationScores, FloorFacts, KeptFacts, Numbers, RowTests
from limbeck.run.known_rows import stored_results
from limbeck.run.prepared import Prepared, SplitsToScore
from limbeck.run.run_folder import kept_by_its_run
from limbeck.run.teachers import Named, learns_from_its_teacher
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import Task
from limbeck.tasks.abstract_type import labelled_rows
from limbeck.tasks.metrics import TEACHER_LABEL, is_agreement

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
        raw = scored.rows[split].raw
        texts = task.kind.shown_texts(task, raw) if prepared.recipe.keep_texts else None
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


def _teachers(
    prepared: Prepared, scored: SplitsToScore, split: str, student: ByRow, measured: Predictions
) -> ByRow | None:
    """The teacher's predictions on a split, measured or kept by its run; None unless of the very same rows."""
    found = measured.get(split) or kept_by_its_run(
        prepared.named[prepared.reference].path, prepared.task, split, scored.fingerprints[split]
    )
    return found if found is not None and list(found["label"]) == list(student["label"]) else None


# A run's floor: a linear model on words of its own training rows, beside its teacher and its student.


# Unlabeled rows whose labels a live teacher is asked for.
_MOST_ASKED = 2_000
_BATCH = 32


def fit_before(prepared: Prepared) -> LinearFloor | None:
    """The floor on the labeled training rows; None where it is off, or there is none."""
    if not prepared.recipe.floor or not has_floor(prepared.task):
        return None
    return fit_floor(prepared.task, prepared.splits["train"], prepared.recipe.seed)


def floor_problems(
    prepared: Prepared, floor: LinearFloor, asked: Mapping[str, TeacherOutputs]
) -> list[Problem]:
    """A warning for each teacher that is not significantly above words alone, on the rows that both predicted.

    Args:
        prepared: the run.
        floor: of its labeled rows.
        asked: what the checks before asked the teachers, by what messages call them.
    """
    if not learns_from_its_teacher(prepared.recipe):
        return []
    problems = []
    for one in prepared.named:
        found = _on_dev(prepared, one, asked.get(one.setting))
        if found is not None:
            problems += _behind(prepared, floor, one.setting, *found)
    return problems


def _on_dev(
    prepared: Prepared, one: Named, asked: TeacherOutputs | None
) -> tuple[Dataset, ByRow] | None:
    """A teacher's predictions on dev rows, and these rows: stored, kept by its run, or asked for by a check or now."""
    task, dev = prepared.task, prepared.splits[prepared.task.dev_splits[0]]
    if one.stored:
        stored = stored_results(one, task, dev)
        return None if stored is None else (dev, stored.predictions)
    if task.kind.of_teacher(one.teacher.model.config) is not task.kind:
        return None
    split = task.dev_splits[0]
    kept = kept_by_its_run(one.path, task, split, prepared.fingerprints[split])
    if kept is not None:
        return dev, kept
    try:
        found = asked or ask_teacher(
            task, one.teacher.model, one.tokenizer, dev, prepared.recipe.max_length
        )
    except LimbeckError:  # a teacher whose outputs no term reads
        return None
    return None if found.rows is None else (found.rows, found.by_row)


def _behind(
    prepared: Prepared, floor: LinearFloor, side: str, rows: Dataset, teacher: ByRow
) -> list[Problem]:
    task = prepared.task
    own = floor.results(task, rows)
    if list(teacher["label"]) != list(own.predictions["label"]):
        return []
    tests = row_tests(task, teacher, own.predictions)
    if is_ahead(task, tests) is not False or tests.difference is None:
        return []
    gap = tests.difference
    reached = own.scores["primary"]
    said = (
        f"{side}: its score of {reached + gap.difference:.1f} is not significantly above that of words alone, "
        f"{reached:.1f} (TF-IDF and a linear model on {floor.rows:,} of the same training rows; {task.primary} on "
        f"{tests.rows:,} dev {tests.unit}, difference {gap.difference:+.1f}, {100 * gap.level:.0f} % interval "
        f"{gap.low:+.1f} to {gap.high:+.1f})"
    )
    fix = (
        "long topical text is often won by words: raise max_length, fine-tune a better teacher, or ship the linear "
        "model; floor=false leaves this comparison out"
    )
    if gap.difference > 0:
        fix = "more dev rows would show a smaller difference; otherwise " + fix
    return [Problem(said, fix, "warning")]


def floor_facts(
    prepared: Prepared,
    rows: Mapping[str, Dataset],
    students: Mapping[str, ByRow],
    teachers: Mapping[str, ByRow | None],
) -> FloorFacts | None:
    """Scores of the run's floor, and the student and the teacher less the floor, by split.

    Args:
        prepared: the run.
        rows: the loaded rows of each split; thresholds are tuned on the first.
        students: predictions by split.
        teachers: likewise, where they are known.
    """
    recipe, task = prepared.recipe, prepared.task
    if not recipe.floor or not has_floor(task):
        return None
    taught = _labels_of_teacher(prepared)
    floor = prepared.floor
    if taught:
        floor = fit_floor(task, prepared.splits["train"], recipe.seed, taught)
    if floor is None:
        return None
    found = FloorFacts(rows=floor.rows, given=floor.given, taught=floor.taught)
    for split, student in students.items():
        results = floor.results(task, rows[split])
        if results.thresholds:
            task = prepared.deciding_by(results.thresholds).task
        found.scores[split] = dict(results.scores)
        own, teacher = results.predictions, teachers.get(split)
        if list(own["label"]) != list(student["label"]):
            continue
        found.student_tests[split] = row_tests(task, student, own)
        # A teacher is right by definition where the labels are its own.
        if teacher is not None and recipe.label_column != TEACHER_LABEL:
            found.teacher_tests[split] = row_tests(task, teacher, own)
    return found


def _labels_of_teacher(prepared: Prepared) -> dict[int, Any]:
    """Place of a training row without a label → what the teacher of the last stage says of it.

    Stored outputs are read for as many rows as a floor is fitted on; a model is asked for fewer.
    """
    task, inputs, train = prepared.task, prepared.last, prepared.splits["train"]
    labels = np.asarray(train.with_format("numpy")[task.label_column][:])
    places = np.flatnonzero(~labelled_rows(labels))
    if not inputs.members or not len(places) or task.kind.problem_of(task.regression) is None:
        return {}
    stored = not any(one.live for one in inputs.members)
    chosen = np.random.default_rng(prepared.recipe.seed).permutation(len(places))
    places = np.sort(places[chosen[: MOST_ROWS if stored else _MOST_ASKED]])
    numbers = facts_of(inputs.rows.encoded).numbers
    assert numbers is not None  # every encoded row has one
    where = {int(number): place for place, number in enumerate(numbers)}
    indices = train.with_format("numpy")["index"][:][places]
    known = [
        (int(p), where[int(number)]) for p, number in zip(places, indices, strict=True)
        if int(number) in where
    ]  # fmt: skip
    if not known:
        return {}
    places, order = np.array(known).T
    said = []
    collate = inputs.collator(prepared.tokenizer)
    try:
        for batch in batches_of(
            inputs.rows.encoded, collate, _BATCH, inputs.members[0].device, order=order.tolist()
        ):
            with torch.no_grad():
                outputs = [one(batch, Request.of_logits()).logits for one in inputs.members]
            if any(one is None for one in outputs):
                return {}
            said.append(np.mean([_plain(task, one) for one in outputs], axis=0))
    except LimbeckError:  # outputs that were not stored, as no term reads them
        return {}
    taught = task.kind.labels_of_outputs(task, np.concatenate(said))
    return dict(zip(places.tolist(), taught, strict=True))


def _plain(task: Task, logits: Any) -> np.ndarray:
    """Numbers (B, 1), or probabilities (B, C)."""
    outputs = logits.float().cpu().numpy()
    return outputs if task.regression else task.kind.probabilities(outputs)
