"""Two finished runs over the rows that both predicted: is one better, or were the rows kind to it?

Part of `limbeck.scoring`. Predictions that the runs kept are read; no model runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from limbeck.evaluation.row_tests import row_tests
from limbeck.recipe import Recipe
from limbeck.records import Numbers, Record, RowTests, finite
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
        return finite(
            {
                "task": self.task,
                "split": self.split,
                "first": self.scores[0],
                "second": self.scores[1],
                "agreement": self.agreement,
                "row_tests": self.tests.model_dump(mode="python"),
            }
        )


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
    runs = [_finished(folder) for folder in folders]
    records = [record for record, _ in runs]
    tasks = [own_task(recipe, f / "student") for f, (_, recipe) in zip(folders, runs, strict=True)]
    chosen = split or tasks[0].dev_splits[0]
    _refuse_unscored(folders, records, chosen)
    _refuse_other_rows(folders, records, tasks, chosen)
    sides = [_predictions(folder, chosen) for folder in folders]
    return RunComparison(
        task=tasks[0].name,
        split=chosen,
        scores=(records[0].scores.get(chosen, {}), records[1].scores.get(chosen, {})),
        agreement=_agreement(tasks[0], sides),
        tests=row_tests(tasks[0], sides[0], sides[1]),
    )


def _agreement(task: Task, sides: Sequence[Mapping[str, Sequence[Any]]]) -> float | None:
    if task.kind.predicts_numbers(task):
        return None
    alike = [a == b for a, b in zip(*(side["prediction"] for side in sides), strict=True)]
    return 100 * sum(alike) / len(alike)


def _finished(folder: Path) -> tuple[Record, Recipe]:
    found = finished_run(folder)
    if found is None:
        raise LimbeckError(f"{folder} is no run folder", "name a folder that holds record.json")
    return found


def _refuse_unscored(folders: Sequence[Path], records: Sequence[Record], split: str) -> None:
    """Runs that kept no predictions of a split, each with what helps."""
    problems = []
    for folder, record in zip(folders, records, strict=True):
        if split in record.examples.fingerprints:
            continue
        there = ", ".join(record.examples.fingerprints) or "none"
        problems.append(
            Problem(
                f"split {split}: run {folder} was not scored on such rows when it was trained (splits: {there})",
                "train it again with test rows (--test FILE or --test-share 0.1)"
                if split == "test"
                else f"choose one of its splits with --split: {there}",
            )
        )
    if problems:
        raise LimbeckError(problems)


def _refuse_other_rows(
    folders: Sequence[Path], records: Sequence[Record], tasks: Sequence[Task], split: str
) -> None:
    """Rows are the same where their fingerprints are; a name of a task or a file proves nothing."""
    named = " and ".join(str(folder) for folder in folders)
    known = [record.examples.fingerprints.get(split) for record in records]
    problems = []
    if tasks[0].primary != tasks[1].primary or tasks[0].labels != tasks[1].labels:
        problems.append(
            Problem(
                f"{named} are of other tasks: {_said(tasks[0])}; {_said(tasks[1])}",
                "compare runs of one task",
            )
        )
    if known[0] is None or known[0] != known[1]:
        problems.append(
            Problem(
                f"{named} were not scored on the same rows of {split} (fingerprints {known[0]} and "
                f"{known[1]})",
                "compare runs on the same data, or train one of them again on the other's",
            )
        )
    if problems:
        raise LimbeckError(problems)


def _said(task: Task) -> str:
    return f"{task.name} by {task.primary}, classes {', '.join(task.labels) or 'none'}"


def _predictions(folder: Path, split: str) -> Mapping[str, Sequence[Any]]:
    found = kept_predictions(folder, split)
    if found is None:
        raise LimbeckError(
            f"{folder} holds no whole predictions of {split}",
            "train it again; a run keeps predictions of its own dev and test splits, and not of rows that were scored "
            "later",
        )
    return found
