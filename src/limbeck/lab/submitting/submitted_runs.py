"""Which run predicts which task of a submission. Part of `limbeck.lab.submitting`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from limbeck.lab.submitting.glue_files import GLUE_FILES
from limbeck.records import RECORD_NAME, Record
from limbeck.students.pretrained import refuse_damaged_student
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home
from limbeck.support.given import is_reference


@dataclass(frozen=True)
class SubmittedRun:
    """A finished run: its folder, and where its own rows are (`hub` where they were objects)."""

    folder: Path
    data: str


def submitted_runs(
    runs: Sequence[str | Path], problems: list[Problem], *, partial: bool
) -> Mapping[str, SubmittedRun]:
    """By task its run; what is wrong is added to `problems`.

    Args:
        runs: folders.
        problems: receives every run that is none, is not finished, is of no task of GLUE or of one that another run
            has, and unless `partial` the tasks that have none.
        partial: whether tasks may be missing.
    """
    found: dict[str, SubmittedRun] = {}
    tasks = tuple(dict.fromkeys(file.task for file in GLUE_FILES))
    for run in runs:
        try:
            task, submitted = _read(at_home(run))
        except LimbeckError as error:
            problems += error.problems
            continue
        if task not in tasks:
            problems.append(
                Problem(f"{run} is a run of {task}", f"tasks of GLUE: {', '.join(tasks)}")
            )
        elif task in found:
            problems.append(
                Problem(
                    f"{run} and {found[task].folder} are both runs of {task}", "name one of them"
                )
            )
        else:
            found[task] = submitted
    missing = [task for task in tasks if task not in found]
    if not found and not problems:
        problems.append(Problem("no run is named", "limbeck submit RUN… --out submission.zip"))
    elif missing and not partial:
        problems.append(
            Problem(
                f"no run of {', '.join(missing)}",
                "the benchmark scores all nine tasks together: name a run of each, or --partial to write the files of "
                "these",
            )
        )
    return found


def _read(folder: Path) -> tuple[str, SubmittedRun]:
    if not (folder / RECORD_NAME).is_file():
        raise LimbeckError(f"{folder} is no run folder", "name the folder that `--out` named")
    record = Record.load(folder)
    if record.status != "finished":
        raise LimbeckError(f"run {folder} is {record.status}", "finish it first")
    student = folder / "student"
    if not (student / "config.json").is_file() or not any(student.glob("*.safetensors")):
        raise LimbeckError(
            f"run {folder} has no student", "studies keep them with keep_students: true"
        )
    # Found later, it would cost the predictions of the tasks before.
    refuse_damaged_student(folder, student)
    data = str(record.recipe.get("data"))
    return str(record.recipe.get("task")), SubmittedRun(
        folder, "hub" if is_reference(data) else data
    )
