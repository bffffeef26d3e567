"""Two finished runs over the rows that both predicted: is one better, or were the rows kind to it?

Part of `limbeck.scoring`. Predictions that the runs kept are read; no model runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.evaluation.class_predictions import agreement
from limbeck.evaluation.row_tests import row_tests
from limbeck.records import Record
from limbeck.records.facts import Numbers, RowTests, finite
from limbeck.run.run_folder import kept_predictions
from limbeck.scoring.scored_model import finished_run, own_task
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home
from limbeck.tasks import Task


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
    if problems := problems or _other_rows(folders, records, tasks, chosen):
        raise LimbeckError(problems)
    sides = [_predictions(folder, chosen) for folder in folders]
    share = agreement(tasks[0], *sides)
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


def _other_rows(
    folders: Sequence[Path], records: Sequence[Record], tasks: Sequence[Task], split: str
) -> list[Problem]:
    """Rows are the same where their fingerprints are; a name of a task or a file proves nothing."""
    named = " and ".join(map(str, folders))
    one, other = (record.examples.fingerprints.get(split) for record in records)
    problems = []
    if len({(task.primary, task.labels) for task in tasks}) > 1:
        said = "; ".join(
            f"{task.name} by {task.primary}, classes {', '.join(task.labels) or 'none'}"
            for task in tasks
        )
        problems.append(Problem(f"{named} are of other tasks: {said}", "compare runs of one task"))
    if one is None or one != other:
        problems.append(
            Problem(
                f"{named} were not scored on the same rows of {split} (fingerprints {one} and {other})",
                "compare runs on the same data, or train one of them again on the other's",
            )
        )
    return problems


def _predictions(folder: Path, split: str) -> Mapping[str, Sequence[Any]]:
    found = kept_predictions(folder, split)
    if found is None:
        raise LimbeckError(
            f"{folder} holds no whole predictions of {split}",
            "train it again; a run keeps predictions of its own dev and test splits, and not of rows that were scored "
            "later",
        )
    return found
