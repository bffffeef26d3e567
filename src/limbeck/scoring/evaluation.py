"""`evaluate(run, task)`: score a finished run's student, on its own task or out of its domain.

Part of `limbeck.scoring`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.data import Collator, Labelling, RowsAsked, encode, rows_fingerprint
from limbeck.evaluation.classification import task_classification
from limbeck.evaluation.row_tests import row_tests
from limbeck.preflight import refuse_unfit
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, ClassificationScores, Numbers, Record, RowTests, finite
from limbeck.run.beside_teacher import kept_texts
from limbeck.run.model_predictions import compact_outputs_of, decided_by
from limbeck.run.report import refresh
from limbeck.run.run_folder import RunFolder, kept_predictions
from limbeck.runtimes import is_export
from limbeck.scoring.exported_scores import score_export
from limbeck.scoring.scored_model import (
    Scored,
    checkpoint_results,
    class_names,
    own_task,
    resolve_class_order,
    rows_of_run,
    score_checkpoint,
    split_to_score,
)
from limbeck.students import load_model, read_config, resolve_checkpoint
from limbeck.support.errors import LimbeckError
from limbeck.support.given import is_reference
from limbeck.tasks import Task, project

# What an evaluation comes to: scores, classes, and the comparison with a teacher.


@dataclass(frozen=True)
class Evaluation:
    """A model's predictions on one split, scored.

    Attributes:
        split: as a record names it: of other rows than the run's with where they lie.
        scores: 0 to 100.
        classification: of a classifier what its predictions come to, class by class and beside a teacher's.
        row_tests: the model less the teacher over the same rows, where the teacher's predictions are known.
    """

    split: str
    scores: Numbers
    classification: ClassificationScores | None = None
    row_tests: RowTests | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain values; a number that is not finite is None."""
        parts = {"classification": self.classification, "row_tests": self.row_tests}
        plain = {name: part and part.model_dump(mode="python") for name, part in parts.items()}
        return finite({"split": self.split, "scores": self.scores, **plain})


def evaluation_against(
    scored: Scored,
    name: str,
    teacher: str | None,
    *,
    texts: bool,
    max_length: int | None = None,
) -> Evaluation:
    """What predictions come to, alone or beside a teacher that is run on the same rows."""
    task, predictions = scored.task, scored.results.predictions
    taught = None
    if teacher is not None:
        path = resolve_checkpoint(teacher)
        taught = checkpoint_results(
            path, task, scored.rows, scored.split, side="teacher", max_length=max_length
        ).predictions
    shown = kept_texts(task, scored.rows) if texts else None
    return Evaluation(
        name,
        dict(scored.results.scores),
        task_classification(task, predictions, taught, shown),
        None if taught is None else row_tests(task, predictions, taught),
    )


log = logging.getLogger(__name__)


def evaluate(
    run: str | Path,
    task: str | None = None,
    data: str | None = None,
    *,
    split: str | None = None,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    backend: str | None = None,
) -> Numbers:
    """Scores, 0 to 100, of a run's student, which the run's record keeps too, or of any checkpoint.

    What the run measured itself stays. Scores on other rows stand beside it, under a key with the
    data's name and the rows' fingerprint. `evaluation_of` gives more than the scores.

    Args:
        run: a finished run's folder, or a checkpoint's folder or Hub name.
        task: the task to score on; the run's own by default. Another task's classes are translated
            (MNLI to SciTail: contradiction counts as neutral).
        data: source of the rows; the run's own by default.
        split: which split; by default the one the task is scored on (dev, or test out of domain).
        text_columns: the columns of your own file that hold text.
        label_column: the one that holds the labels.
        backend: what computes: `torch`, or for an exported folder (or a run that holds one)
            `onnxruntime` or `openvino`; by default what the folder is for. Scores of exported models
            do not enter a run's record.

    Raises:
        LimbeckError: no finished run there, classes that do not correspond, or nothing exported.
    """
    return evaluation_of(
        run,
        task,
        data,
        split=split,
        text_columns=text_columns,
        label_column=label_column,
        backend=backend,
    ).scores


def evaluation_of(
    run: str | Path,
    task: str | None = None,
    data: str | None = None,
    *,
    split: str | None = None,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    backend: str | None = None,
    teacher: str | None = None,
    texts: bool | None = None,
) -> Evaluation:
    """As `evaluate`, with all that predictions of classes come to.

    Args:
        run: as the following ones, `evaluate`'s.
        task: likewise.
        data: likewise.
        split: likewise.
        text_columns: likewise.
        label_column: likewise.
        backend: likewise.
        teacher: a run folder, a checkpoint's folder or Hub name to hold the predictions against, on the same
            rows. Without it, a run's own rows have what the run itself recorded of its teacher.
        texts: whether the examples of disagreement hold their texts; by default as the run's recipe says.

    Raises:
        LimbeckError: as `evaluate`; or a teacher without these classes.
    """
    asked = RowsAsked(task, data, split, text_columns, label_column)
    folder = RunFolder(Path(run))
    if (backend or "torch") != "torch" or is_export(run):
        scored = score_export(str(run), asked, backend)
        return evaluation_against(scored, scored.split, teacher, texts=texts is not False)
    if not (folder.path / RECORD_NAME).is_file():
        scored = score_checkpoint(str(run), asked)
        return evaluation_against(scored, scored.split, teacher, texts=texts is not False)
    record = _finished(folder)
    recipe = Recipe.recorded(record.recipe, str(folder.path))
    recipe = _with_rows_named(recipe, data)
    own = task is None or task == recipe.task
    scored = _of_student(recipe, folder, asked, own=own)
    fingerprint = rows_fingerprint(scored.task, scored.rows)
    place = Path(data or recipe.data)
    # Of another task, but from where the run's rows are, its name says which they are.
    other = data not in (None, recipe.data)
    wanted = _name(scored.task, scored.split, own=own)
    name = _name_in(record, wanted, fingerprint, place, other=other)
    found = evaluation_against(
        scored,
        name,
        teacher,
        texts=recipe.keep_texts if texts is None else texts,
        max_length=recipe.max_length,
    )
    if teacher is None and _as_recorded(record, folder, found, scored):
        recorded = record.classification.get(name)
        if recorded is not None and texts is False:
            recorded = recorded.without_texts()
        found = replace(
            found,
            classification=recorded,
            row_tests=record.row_tests.get(name),
        )
    # A teacher that is named here need not be the run's own, of which alone the record speaks.
    kept = found if teacher is None else replace(found, classification=None, row_tests=None)
    _keep(record, folder, kept, fingerprint)
    return found


def _of_student(recipe: Recipe, folder: RunFolder, asked: RowsAsked, *, own: bool) -> Scored:
    """The predictions of a run's student."""
    target, rows, _ = rows_of_run(recipe, folder.student, asked, elsewhere=Labelling())
    source = own_task(recipe, folder)
    chosen = split_to_score(target, rows, asked.split)
    target = decided_by(target, read_config(folder.student))
    tokenizer = target.kind.reads.load(str(folder.student))
    length = target.kind.scored_length(recipe.max_length)
    encoded, _ = encode(rows[chosen], target, tokenizer, length)
    model = load_model(folder.student, auto=source.kind.auto)
    refuse_unfit(str(folder.path), model, tokenizer)
    of_run = own and asked.data in (None, recipe.data)
    unproven = class_names(target, model, side="student") if own and not of_run else []
    outputs = compact_outputs_of(model, encoded, Collator(tokenizer, kind=target.kind))
    outputs = outputs if own else project(outputs, source, target)
    labels = rows[chosen][target.label_column][:]
    resolve_class_order(target, unproven, outputs, labels, chosen, side="student")
    results = target.kind.results(target, outputs, encoded, rows[chosen], tokenizer)
    if not own:  # translated classes come without probabilities
        results.predictions.pop("probabilities", None)
    return Scored(target, chosen, rows[chosen], results)


def _as_recorded(record: Record, folder: RunFolder, found: Evaluation, scored: Scored) -> bool:
    """Whether the run recorded these very predictions, its teacher's beside them."""
    if found.split not in {*record.classification, *record.row_tests}:
        return False
    kept = kept_predictions(folder.path, found.split)
    mine = scored.results.predictions
    if kept is None or list(kept["label"]) != list(mine["label"]):
        return False
    if scored.task.kind.predicts_numbers(scored.task):
        # Rows that were padded beside others come out the same to rounding.
        return np.allclose(kept["prediction"], mine["prediction"], rtol=1e-4, atol=1e-4)
    return list(kept["prediction"]) == list(mine["prediction"])


def _finished(folder: RunFolder) -> Record:
    record = Record.load(folder.path)
    if record.status != "finished":
        raise LimbeckError(f"run {folder.path} is {record.status}", "finish it first")
    return record


def _name_in(record: Record, name: str, fingerprint: str, place: Path, *, other: bool) -> str:
    """What the record calls these rows: the split's name is that of the run's own.

    `place`: their file or folder. `other`: they are not said to be the run's.
    """
    known = record.examples.fingerprints.get(name)
    # Rows of the run's own that an earlier version scored cannot be distinguished from others.
    if (other or name in record.scores) and known != fingerprint:
        name = f"{name} of {place.name} #{fingerprint[:8]}"
        log.warning("scored on other rows than the run's, or not known to be its: see %r", name)
    return name


def _keep(record: Record, folder: RunFolder, found: Evaluation, fingerprint: str) -> None:
    """What was found enters the run's record, beside what it measured itself."""
    name = found.split
    if name not in record.scores:
        record.scores = record.scores | {name: found.scores}
        record.examples.fingerprints[name] = fingerprint
    elif name in record.classification or found.classification is None:
        return
    if found.classification is not None:
        record.classification = record.classification | {name: found.classification}
    if found.row_tests is not None:
        record.row_tests = record.row_tests | {name: found.row_tests}
    record.save(folder.path)
    refresh(folder.path)


def _with_rows_named(recipe: Recipe, data: str | Path | None) -> Recipe:
    """The recipe with rows that can be read, where its own were objects and others are named."""
    if data is None or not is_reference(recipe.data):
        return recipe
    return recipe.model_copy(update={"data": str(data)})


def _name(target: Task, split: str, *, own: bool) -> str:
    if own:
        return split
    return (
        target.name if (split,) == target.evaluation_splits([split]) else f"{target.name}:{split}"
    )
