"""`evaluate(run, task)` scores a finished run's student, `compare` two of them, on their own task or out of its domain.

Part of `limbeck.scoring`.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from limbeck.data import NOTHING_NAMED, RowsAsked
from limbeck.evaluation import class_predictions, classification
from limbeck.evaluation.row_tests import row_tests
from limbeck.preflight.data_checks import REPEATED, count_among
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.records.facts import ClassificationScores, Numbers, RowTests, finite
from limbeck.run import finish, run_folder
from limbeck.scoring.scored_model import (
    LoadedSplit,
    Scored,
    ScoredModel,
    finished_run,
    own_task,
    rows_of_run,
)
from limbeck.students import placement
from limbeck.support.errors import LimbeckError, Problem, problem_list, raise_problems
from limbeck.support.files import at_home
from limbeck.support.settings import DeviceMap
from limbeck.tasks import Task

# The result of an evaluation: scores, classes, and the comparison with a teacher.


@dataclass(frozen=True)
class Evaluation:
    """A model's predictions on one split, scored.

    Attributes:
        split: its name in a record; for rows other than the run's, with their location.
        scores: 0 to 100.
        classification: for a classifier, the results class by class, with a teacher's.
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
        found: dict[str, Any] = finite({"split": self.split, "scores": self.scores, **plain})
        return found


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

    The run's own measurements stay. Scores on other rows are added to the record, under a key with the
    data's name and the rows' fingerprint. `evaluation_of` gives more than the scores.

    Args:
        run: a finished run's folder, a checkpoint's folder or Hub name, or an exported folder.
        task: the task to score on; the run's own by default. Another task's classes are translated
            (MNLI to SciTail: contradiction counts as neutral).
        data: source of the rows; the run's own by default.
        split: which split; by default the one the task is scored on (dev, or test out of domain).
        text_columns: the columns of your own file that hold text.
        label_column: the one that holds the labels.
        backend: the runtime: `torch`, or for an exported folder (or a run that holds one)
            `onnxruntime` or `openvino`; by default the folder's. Scores of
            exported models do not enter a run's record.

    Example:
        ```python
        limbeck.evaluate("runs/student", split="test")
        limbeck.evaluate("runs/student", data="new.csv", text_columns=["text"], label_column="label")
        ```

    Raises:
        LimbeckError: no finished run there, classes that do not correspond, or nothing exported.
    """
    asked = RowsAsked(task, data and str(data), split, text_columns, label_column)
    return evaluation_of(run, asked, backend=backend).scores


def evaluation_of(
    run: str | Path,
    asked: RowsAsked = NOTHING_NAMED,
    *,
    backend: str | None = None,
    teacher: str | None = None,
    texts: bool | None = None,
    device_map: DeviceMap | None = None,
) -> Evaluation:
    """As `evaluate`, with all that predictions of classes come to.

    Args:
        run: as `evaluate`'s.
        asked: the rows: task, data, split, text_columns, label_column, as `evaluate` takes them.
        backend: as `evaluate`'s.
        teacher: a run folder, a checkpoint's folder or Hub name to compare the predictions with, on the same
            rows. Without it, a run's own rows have the run's record of its teacher.
        texts: whether the examples of disagreement hold their texts; by default as in the run's recipe.
        device_map: how the parts of a large model are placed on several devices.

    Raises:
        LimbeckError: as `evaluate`; or a teacher without these classes.
    """
    placement(device_map)  # reports an unknown name before rows are read
    model = replace(ScoredModel.open(run, backend), device_map=device_map)
    loaded = model.rows(asked)
    scored = model.score(loaded)
    record, recipe = model.record, model.recipe
    if record is None or recipe is None:
        return _beside(scored, loaded.name, teacher, texts=texts is not False)
    name = _name_in(record, recipe, asked, loaded)
    folder = at_home(run)
    shown = recipe.keep_texts if texts is None else texts
    found = _beside(scored, name, teacher, texts=shown)
    if teacher is None and _as_recorded(record, folder, found, scored):
        recorded = record.classification.get(name)
        if recorded is not None and texts is False:
            recorded = recorded.without_texts()
        found = replace(found, classification=recorded, row_tests=record.row_tests.get(name))
    # A teacher that is named here need not be the run's own, of which alone the record speaks.
    kept = found if teacher is None else replace(found, classification=None, row_tests=None)
    others = name not in record.scores and " of " in name
    if others and (known := known_rows(recipe, folder / "student", loaded)):
        record.examples.in_train[name] = known
        log.warning(
            "%d of these %d rows are training or dev rows of the run: their score measures memorization",
            known,
            len(loaded.rows),
        )
    _keep(record, folder, kept, loaded.fingerprint)
    return found


def known_rows(recipe: Recipe, student: str | Path, loaded: LoadedSplit) -> int:
    """How many of some other rows a run was trained or selected on, where its own can still be read.

    A few repetitions (`REPEATED`) are the data's own, and count as none.
    """
    if not loaded.task.kind.reads.in_columns:
        return 0
    try:
        own, splits, _ = rows_of_run(recipe, student, NOTHING_NAMED)
    except LimbeckError:
        return 0
    known = [splits[split] for split in ("train", "dev") if split in splits]
    count = count_among(loaded.task, {loaded.name: loaded.rows}, own, known)[loaded.name]
    return count if count > REPEATED * len(loaded.rows) else 0


def _beside(scored: Scored, name: str, teacher: str | None, *, texts: bool) -> Evaluation:
    """The results of predictions, alone or compared with a teacher that is run on the same rows."""
    task, own, loaded = scored.task, scored.results.predictions, scored.split.loaded
    taught = None
    if teacher is not None:
        given = replace(loaded, own_classes=False, translated_from=None)
        taught = ScoredModel.open(teacher).score(given, side="teacher").results.predictions
    shown = task.kind.shown_texts(task, loaded.rows) if texts else None
    return Evaluation(
        name,
        dict(scored.results.scores),
        classification.task_classification(task, own, taught, shown),
        None if taught is None else row_tests(task, own, taught),
    )


def _as_recorded(record: Record, folder: Path, found: Evaluation, scored: Scored) -> bool:
    """Whether the run recorded these very predictions, together with its teacher's."""
    if found.split not in {*record.classification, *record.row_tests}:
        return False
    kept = run_folder.kept_predictions(folder, found.split)
    mine = scored.results.predictions
    if kept is None or list(kept["label"]) != list(mine["label"]):
        return False
    if scored.task.kind.predicts_numbers(scored.task):
        # Rows that were padded in other batches come out the same to rounding.
        return np.allclose(kept["prediction"], mine["prediction"], rtol=1e-4, atol=1e-4)
    return list(kept["prediction"]) == list(mine["prediction"])


def _name_in(record: Record, recipe: Recipe, asked: RowsAsked, loaded: LoadedSplit) -> str:
    """The record's name of these rows: for the run's own, the split's name."""
    task, name = loaded.task, loaded.name
    if asked.task not in (None, recipe.task):
        scored_on = (name,) == task.evaluation_splits([name])
        name = task.name if scored_on else f"{task.name}:{name}"
    # For another task with the same location as the run's rows, its name identifies them.
    other = asked.data not in (None, recipe.data)
    known = record.examples.fingerprints.get(name)
    # Rows of the run's own that an earlier version scored cannot be distinguished from others.
    if (other or name in record.scores) and known != loaded.fingerprint:
        name = f"{name} of {Path(loaded.data).name} #{loaded.fingerprint[:8]}"
        log.warning(
            "the record keeps these scores as %r: the rows are not known as the run's own", name
        )
    return name


def _keep(record: Record, folder: Path, found: Evaluation, fingerprint: str) -> None:
    """Add the results to the run's record, next to its own measurements."""
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
    record.save(folder)
    finish.refresh(folder)


@dataclass(frozen=True)
class RunComparison:
    """Two runs on one split.

    Attributes:
        task: its name.
        split: its name.
        scores: of the first run and of the second, 0 to 100.
        agreement: rows that both predict alike, 0 to 100; None where predictions are numbers.
        tests: the first less the second.
    """

    task: str
    split: str
    scores: tuple[Numbers, Numbers]
    agreement: float | None
    tests: RowTests

    def as_json(self) -> dict[str, Any]:
        """Plain values; a number that is not finite is None."""
        first, second = self.scores
        said = {"task": self.task, "split": self.split, "first": first, "second": second}
        tests = self.tests.model_dump(mode="python")
        found: dict[str, Any] = finite(said | {"agreement": self.agreement, "row_tests": tests})
        return found


def compare_runs(first: str | Path, second: str | Path, split: str | None = None) -> RunComparison:
    """Two runs' predictions of the same rows, held against each other.

    Args:
        first: a finished run's folder.
        second: another's.
        split: one that both were scored on when they were trained, as test; by default the task's dev split.

    Raises:
        LimbeckError: runs that are not finished or of different tasks, rows that are not proven to be the same, or
            predictions that are not there.
    """
    folders = [at_home(str(run)) for run in (first, second)]
    runs = [finished_run(folder) for folder in folders]
    for folder, run in zip(folders, runs, strict=True):
        if run is None:
            raise LimbeckError(f"{folder} is no run folder", "name a folder that holds record.json")
    records, recipes = zip(*(run for run in runs if run is not None), strict=True)
    tasks = [own_task(one, f / "student") for one, f in zip(recipes, folders, strict=True)]
    chosen = split or tasks[0].dev_splits[0]
    problems = [
        _unscored(folder, record, chosen)
        for folder, record in zip(folders, records, strict=True)
        if chosen not in record.examples.fingerprints
    ]
    raise_problems(problems or _other_rows(folders, records, tasks, chosen))
    sides = [_predictions(folder, chosen) for folder in folders]
    share = class_predictions.agreement(tasks[0], *sides)
    return RunComparison(
        task=tasks[0].name,
        split=chosen,
        scores=(records[0].scores.get(chosen, {}), records[1].scores.get(chosen, {})),
        agreement=None if share is None else 100 * share,
        tests=row_tests(tasks[0], *sides),
    )


def _unscored(folder: Path, record: Record, split: str) -> Problem:
    """A run that kept no predictions of a split, with what helps."""
    there = ", ".join(record.examples.fingerprints) or "none"
    fix = f"choose one of its splits with --split: {there}"
    if split == "test":
        fix = "train it again with test rows (--test FILE or --test-share 0.1)"
    return Problem(
        f"split {split}: run {folder} was not scored on such rows when it was trained (splits: {there})",
        fix,
    )


@problem_list
def _other_rows(
    folders: Sequence[Path], records: Sequence[Record], tasks: Sequence[Task], split: str
) -> Iterator[Problem]:
    """Rows are the same where their fingerprints are; a name of a task or a file proves nothing."""
    named = " and ".join(map(str, folders))
    one, other = (record.examples.fingerprints.get(split) for record in records)
    if len({(task.primary, task.labels) for task in tasks}) > 1:
        said = "; ".join(
            f"{task.name} by {task.primary}, classes {', '.join(task.labels) or 'none'}"
            for task in tasks
        )
        yield Problem(f"{named} are of other tasks: {said}", "compare runs of one task")
    if len(kinds := {task.kind.name for task in tasks}) > 1:
        yield Problem(
            f"{named} are of kinds {' and '.join(sorted(kinds))}, whose predictions have different forms",
            "compare their scores: limbeck table",
        )
    if one is None or one != other:
        yield Problem(
            f"{named} were not scored on the same rows of {split} (fingerprints {one} and {other})",
            "compare runs on the same data, or train one of them again on the other's",
        )


def _predictions(folder: Path, split: str) -> Mapping[str, Sequence[Any]]:
    found = run_folder.kept_predictions(folder, split)
    if found is None:
        raise LimbeckError(
            f"{folder} holds no complete predictions of {split}",
            "train it again; a run keeps predictions of its own dev and test splits, and not of rows that were scored "
            "later",
        )
    return found
