"""Scores of a run's teachers on its rows; a student's predictions next to those by its teacher and the floor.

Part of `limbeck.run`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedModel

from limbeck.activations import Request, capture
from limbeck.data import Collator, batches_of, row_facts, row_ids
from limbeck.evaluation import classification
from limbeck.evaluation.linear_floor import MOST_ROWS, LinearFloor, fit_floor, has_floor
from limbeck.evaluation.row_tests import is_ahead, kept_share, row_tests
from limbeck.preflight import TeacherOutputs, ask_teacher, recorded_scores
from limbeck.preflight.data_checks import REPEATED
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.records.facts import ConstantFacts, FloorFacts, Numbers, OutputsFacts
from limbeck.run import bound_rows, run_folder
from limbeck.run.models import Named, learns_from_its_teacher
from limbeck.run.prepared import TEST, Prepared, SplitsToScore
from limbeck.run.rows import add_unlabelled, load_rows
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.machine import device_of
from limbeck.tasks import Processor, Task, abstract_type, metrics

log = logging.getLogger(__name__)


Kept = dict[str, Mapping[str, Sequence[Any]]]
"""Split → predictions by row."""


def teacher_scores(
    prepared: Prepared,
    place: int,
    *,
    scored: SplitsToScore | None = None,
    splits: Sequence[str] | None = None,
    keep: Kept | None = None,
) -> dict[str, Numbers]:
    """Scores by split, 0 to 100, of the teacher at a place of `prepared.named`; known ones are not measured again.

    Stored outputs have scores of the splits of which they cover every row.

    `scored`: the rows, the run's dev splits by default, and of them `splits` alone. `keep` gets the predictions of what
    is measured.

    Raises:
        LimbeckError: the teacher cannot be scored on these rows.
    """
    scored = scored or prepared.dev
    one, known = prepared.named[place], prepared.scored.get(place, {})
    wanted = [split for split in scored if splits is None or split in splits]
    missing = [split for split in wanted if split not in known]
    if one.stored:
        found, task = dict(known), prepared.task
        for split in missing:
            results = bound_rows.stored_results(one, task, scored[split].raw)
            if results is not None:
                task = replace(task, thresholds=results.thresholds or task.thresholds)
                found[split] = dict(results.scores)
                if keep is not None:
                    keep[split] = results.predictions
        return found
    measured = scores_of(
        prepared, scored, one.path, lambda: (one.teacher.model, one.tokenizer), missing, keep
    )
    known = {**known, **measured}
    return {split: known[split] for split in wanted if split in known}


def outputs_facts(prepared: Prepared) -> list[OutputsFacts]:
    """The record's entries for stored outputs that replace teachers."""
    return [
        OutputsFacts(
            name=one.name,
            path=one.path,
            what=one.teacher.outputs.what,
            about=one.teacher.outputs.about,
            scores=teacher_scores(prepared, place),
        )
        for place, one in enumerate(prepared.named)
        if one.stored
    ]


def reference_scores(
    prepared: Prepared, scored: SplitsToScore, keep: Kept | None = None
) -> dict[str, Numbers]:
    """Scores of the teacher that the student is compared with; empty for a teacher without logits.

    `keep` gets the predictions measured for it.
    """
    if not prepared.named:
        return {}
    try:
        return teacher_scores(prepared, prepared.reference, scored=scored, keep=keep)
    except LimbeckError as error:
        # The student is trained by now, and perhaps no term ever requested the teacher's outputs.
        log.warning("the teacher has no score on these rows: %s", error)
        return {}


def scores_of(
    prepared: Prepared,
    scored: SplitsToScore,
    path: str,
    load: Callable[[], tuple[PreTrainedModel, Processor]],
    splits: Sequence[str],
    keep: Kept | None = None,
) -> dict[str, Numbers]:
    """A model's scores on splits of `scored`: from the record at `path`, otherwise measured on all rows.

    Test rows come last, with the thresholds of the dev rows; a model trained on them gets no score.
    `keep` gets the measured predictions.

    Raises:
        LimbeckError: as `ask_teacher`.
    """
    task = prepared.task
    rows = {split: scored[split].fingerprint for split in splits}
    found = recorded_scores(path, task, rows)
    scores = {} if found is None else found[0]
    missing = [split for split in splits if split not in scores]
    learned = _learned(path, task) if missing else np.empty(0)
    for split in [*missing]:
        if _learned_from(learned, path, task, split, scored[split].raw) and split == TEST:
            missing.remove(TEST)
    if missing:
        model, tokenizer = load()
        if TEST in splits and task.dev_splits[0] not in missing:
            task = task.kind.decided_by(task, model.config)
    for split in missing:
        raw, length = scored[split].raw, prepared.recipe.max_length
        answers = ask_teacher(task, model, tokenizer, raw, length, rows=len(raw))
        task = replace(task, thresholds=answers.thresholds or task.thresholds)
        scores[split] = dict(answers.scores)
        if keep is not None:
            keep[split] = answers.by_row
    return scores


def _learned(path: str, task: Task) -> np.ndarray:
    """The ids of the rows that a run's model was trained on, whatever its task is called; none that are not there."""
    if not Path(path).is_dir():  # a Hub name
        return np.empty(0)
    try:
        place = Path(path) if (Path(path) / RECORD_NAME).is_file() else Path(path).parent
        recipe = Recipe.recorded(Record.load(place).recipe, str(place))
        # Rows that the teacher's own run scored are among its text, and were left out of training.
        return row_ids.ids_of(task, add_unlabelled(recipe, *load_rows(recipe))[0]["train"])
    except (LimbeckError, KeyError):
        return np.empty(0)


def _learned_from(learned: np.ndarray, path: str, task: Task, split: str, rows: Dataset) -> bool:
    """Whether a model was trained on some of these rows, which its run would not have scored; notes it if so."""
    known = np.isin(row_ids.ids_of(task, rows), learned) if len(learned) else np.zeros(1)
    if known.mean() <= REPEATED:  # as many repetitions as data have of their own
        return False
    log.warning(
        "the teacher %s was trained on %d of the %d %s rows, so that %s: fine-tune it again with the same data "
        "settings as the student",
        path, known.sum(), len(rows), split,
        "it has no score there" if split == TEST else "its score there measures memorization",
    )  # fmt: skip
    return True


def scores_beside_teacher(
    prepared: Prepared, scored: SplitsToScore, student: PreTrainedModel
) -> dict[str, Numbers]:
    """How near the distributions of a language model that generates are to its teacher's, by split.

    None of a teacher that is not loaded, or reads other tokens.
    """
    kind, teacher, found = prepared.task.kind, prepared.teacher, dict[str, Numbers]()
    generates = kind.language_model and kind.generates
    if teacher is None or not generates or not _reads_alike(prepared):
        return found
    collate, asked = Collator(prepared.tokenizer, kind=kind), Request.of_logits()
    student.eval()
    for split, rows in scored.items():
        sums = []
        for batch in batches_of(rows.encoded, collate, kind.scored_at_once, student.device):
            with torch.no_grad():
                moved = {name: value.to(device_of(teacher)) for name, value in batch.items()}
                ours, theirs = (
                    capture(student, batch, asked).logits,
                    capture(teacher, moved, asked).logits,
                )
                if ours is None or theirs is None or ours.shape != theirs.shape:
                    return {}
                sums.append(kind.beside_teacher(ours, theirs.to(ours.device), batch))
        count, same, divergence = torch.stack(sums).sum(0).tolist()
        found[split] = {
            metrics.TEACHER_AGREEMENT: 100 * same / max(count, 1),
            metrics.TEACHER_KL: 100 * divergence / max(count, 1),
        }
    return found


def _reads_alike(prepared: Prepared) -> bool:
    describe, own = prepared.task.kind.reads.describe, prepared.named[prepared.reference].tokenizer
    return own is not None and describe(own) == describe(prepared.tokenizer)


ByRow = Mapping[str, Sequence[Any]]
"""Predictions of one split, as a task type keeps them."""
Predictions = Mapping[str, ByRow]
"""Split → predictions by row."""


def compare(
    prepared: Prepared,
    scored: SplitsToScore,
    record: Record,
    predictions: Predictions,
    teacher_scores: Mapping[str, Numbers],
    measured: Predictions,
) -> None:
    """Add the comparison of the student's and the teacher's predictions, on every split, to a record.

    The share of the teacher's primary score, and a constant prediction that is as good, on the split that selects;
    counts, tests and the floor on all splits.
    `measured`: the teacher's own predictions on splits that it was run on for this; of others its run may have kept
    them.
    """
    task, split = prepared.task, prepared.task.dev_splits[0]
    taught = {
        split: _teachers(prepared, scored, split, student, measured)
        for split, student in predictions.items()
        if teacher_scores.get(split)
    }
    rows = {split: scored[split].raw for split in predictions}
    record.floor = floor_facts(prepared, rows, predictions, taught)
    # Labels that are the teacher's own predictions leave nothing to test it on.
    tested = not metrics.is_agreement(task.primary)
    for name, student in predictions.items():
        teacher = taught.get(name)
        texts = task.kind.shown_texts(task, rows[name]) if prepared.recipe.keep_texts else None
        classes = classification.task_classification(task, student, teacher, texts)
        if classes is not None:
            record.classification[name] = classes
        if teacher is not None and tested:
            record.row_tests[name] = row_tests(task, student, teacher)
    own = record.scores.get(split, {}).get("primary")
    theirs = teacher_scores.get(split, {}).get("primary")
    if tested and own is not None and theirs is not None:
        record.kept = kept_share(task, predictions[split], taught.get(split), (own, theirs))
    if own is not None and task.label_column in rows[split].column_names:
        score, prediction = task.kind.baseline_of_rows(task, rows[split])
        record.best_constant = (
            ConstantFacts(prediction=prediction, score=score) if own <= score else None
        )


def _teachers(
    prepared: Prepared, scored: SplitsToScore, split: str, student: ByRow, measured: Predictions
) -> ByRow | None:
    """The teacher's predictions on a split, measured or kept by its run; None unless of the very same rows."""
    found = measured.get(split) or run_folder.kept_by_its_run(
        prepared.named[prepared.reference].path, prepared.task, split, scored[split].fingerprint
    )
    return found if found is not None and list(found["label"]) == list(student["label"]) else None


# A run's floor: a linear model on words of its own training rows, compared with its teacher and its student.


# Unlabeled rows that a live teacher labels.
_MOST_ASKED = 2_000
_BATCH = 32


def fit_before(prepared: Prepared) -> LinearFloor | None:
    """The floor on the labeled training rows; None if it is off, or not supported."""
    if not prepared.recipe.floor or not has_floor(prepared.task):
        return None
    return fit_floor(prepared.task, prepared.splits["train"], prepared.recipe.seed)


def floor_problems(
    prepared: Prepared, floor: LinearFloor, asked: Mapping[str, TeacherOutputs]
) -> list[Problem]:
    """A warning for each teacher that is not significantly above words alone, on the rows that both predicted.

    Args:
        prepared: the run.
        floor: fitted on its labeled rows.
        asked: the teachers' outputs from the earlier checks, by each teacher's name in messages.
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
    """A teacher's predictions on dev rows, and these rows: stored, kept by its run or a check, or computed now."""
    task, dev = prepared.task, prepared.splits[prepared.task.dev_splits[0]]
    if one.stored:
        stored = bound_rows.stored_results(one, task, dev)
        return None if stored is None else (dev, stored.predictions)
    if task.kind.of_teacher(one.teacher.model.config) is not task.kind:
        return None
    split = task.dev_splits[0]
    kept = run_folder.kept_by_its_run(one.path, task, split, prepared.dev[split].fingerprint)
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
    gap, reached = tests.difference, own.scores["primary"]
    said = (
        f"{side}: its score of {reached + gap.difference:.1f} is not significantly above the score of words alone, "
        f"{reached:.1f} (TF-IDF and a linear model on {floor.rows:,} of the same training rows; {task.primary} on "
        f"{tests.rows:,} dev {tests.unit}, difference {gap.difference:+.1f}, {100 * gap.level:.0f} % interval "
        f"{gap.low:+.1f} to {gap.high:+.1f})"
    )
    more = "more dev rows would show a smaller difference; otherwise " if gap.difference > 0 else ""
    fix = (
        "long topical text is often won by words: raise max_length, fine-tune a better teacher, or ship the linear "
        "model; floor=false leaves this comparison out"
    )
    return [Problem(said, more + fix, "warning")]


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
        teachers: predictions by split, if they are known.
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
        if teacher is not None and recipe.label_column != metrics.TEACHER_LABEL:
            found.teacher_tests[split] = row_tests(task, teacher, own)
    return found


def _labels_of_teacher(prepared: Prepared) -> dict[int, Any]:
    """Map the index of each training row without a label to the prediction of the last stage's teacher.

    Stored outputs are read for as many rows as a floor is fitted on; a model runs on fewer.
    """
    task, inputs, train = prepared.task, prepared.last, prepared.splits["train"]
    labels = np.asarray(train.with_format("numpy")[task.label_column][:])
    places = np.flatnonzero(~abstract_type.labelled_rows(labels))
    if not inputs.members or not len(places) or task.kind.problem_of(task.regression) is None:
        return {}
    most = _MOST_ASKED if any(one.live for one in inputs.members) else MOST_ROWS
    chosen = np.random.default_rng(prepared.recipe.seed).permutation(len(places))[:most]
    places = np.sort(places[chosen])
    numbers = row_facts.facts_of(inputs.rows.encoded).numbers
    assert numbers is not None  # every encoded row has one
    indices = train.with_format("numpy")["index"][:][places]
    # The rows may include some that are not trained on.
    _, there, order = np.intersect1d(indices, numbers, assume_unique=True, return_indices=True)
    said, collate = [], inputs.collator(prepared.tokenizer)
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
    if not said:
        return {}
    taught = task.kind.labels_of_outputs(task, np.concatenate(said))
    return dict(zip(places[there].tolist(), taught, strict=True))


def _plain(task: Task, logits: Any) -> np.ndarray:
    """Numbers (B, 1), or probabilities (B, C)."""
    outputs = logits.float().cpu().numpy()
    return outputs if task.regression else task.kind.probabilities(outputs)
