"""`limbeck quickstart`: few labels and much text.

A teacher learns from the rows that keep their labels, and so does a small student. The same student then learns the
teacher's outputs on all rows, labels unread. Everything is generated and trained here, with no network, in minutes.
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from limbeck.data import load_task
from limbeck.data.splits import Conditions
from limbeck.lab.study import SharedRuns, Study, StudyPlan, StudyRun, carry_out
from limbeck.lab.study.study_estimate import held_or_none
from limbeck.lab.study.study_fields import Group
from limbeck.recipe import Recipe
from limbeck.records import RECORD_NAME, Record
from limbeck.report import write_report
from limbeck.run import distill, finish
from limbeck.run.earlier_run import EarlierRun
from limbeck.run.prepare import prepare
from limbeck.run.run_folder import RunFolder
from limbeck.support.errors import LimbeckError
from limbeck.support.files import write_whole
from limbeck.tables import ResultsTable, build_table, terminal
from limbeck.teachers.teacher import Teacher

FACTS_SHOWN = ("layers", "parameters", "flops", "latency", "kept")
TASK, LABELS, SEEDS = "sst2", 1_500, 4
ALONE, UNLABELLED = "labels alone", "with unlabeled rows"
# By row of the table: the method, and whether it reads the rows without labels too.
STUDENTS = {ALONE: ("finetune", False), UNLABELLED: ("logit-mse", True)}
# Examples read in training, whatever the number of labels: both students take as many steps, and nine runs stay
# within minutes on two cores. `limbeck finetune` and `distill` train longer.
TEACHER_EXAMPLES, STUDENT_EXAMPLES = 24_000, 48_000
STUDENT = {"student.init": "pocket-2-64-4", "lr": 1e-3, "batch_size": 64}


def quickstart(
    out: str | Path = "runs/quickstart",
    *,
    task: str = TASK,
    labels: int = LABELS,
    seeds: int = SEEDS,
    jobs: int = 1,
    show: bool = True,
) -> Path:
    """Run it, print the table and write the report; returns the report's path.

    Args:
        out: folder of all runs; finished runs there are not made again.
        task: a pocket task.
        labels: rows that keep their labels; all other training rows lose them.
        seeds: runs of each student, with seeds 1, 2, …; the teacher has one.
        jobs: processes that make students side by side; the numbers are the same with any.
        show: progress and the table on the terminal.

    Raises:
        LimbeckError: no row would be left without a label, the folder holds runs of other settings, or a run failed.
    """
    folder = Path(out)
    began = time.monotonic()
    console = Console(quiet=not show, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 100
    rest, count = _unlabelled_rows(task, labels, folder)
    console.print(
        f"limbeck quickstart: pocket {task}, {labels:,} rows with labels and {count:,} without; "
        "teacher first",
        highlight=False,
    )
    # Matrices this small gain nothing from a second thread and lose time on handing work over.
    torch.set_num_threads(1)
    shared = {"task": task, "data": "pocket", "train_rows": labels}
    scratch = {"student.init": "pocket", "epochs": _passes(TEACHER_EXAMPLES, labels), "seed": 1}
    teacher = distill(Recipe.load("finetune", **shared, **scratch), folder / "teacher", show=show)
    shared |= {"teacher": str(teacher.path), **STUDENT}
    groups = [_students(label, seeds, shared, rest, count) for label in STUDENTS]
    _make(groups, folder, jobs, console)
    records = [teacher.record]
    for group in groups:
        found = [Record.load(folder / run.name) for run in group.grid[0][1]]
        records += [one.model_copy(update={"method": group.label}) for one in found]
    live = Teacher.load(teacher.path)
    matrices = {group.label: _similarity(group, folder, live) for group in groups}
    report = _present(records, matrices, folder, task, console)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    console.print(f"in {minutes} min {seconds} s", highlight=False)
    return report


def _students(label: str, seeds: int, shared: dict[str, Any], rest: Path, count: int) -> Group:
    """The runs of one row of the table; `rest` holds the `count` rows without labels."""
    method, reads_rest = STUDENTS[label]
    rows = shared["train_rows"] + count if reads_rest else shared["train_rows"]
    own: dict[str, Any] = {"epochs": _passes(STUDENT_EXAMPLES, rows)}
    own |= {"unlabelled": [str(rest)]} if reads_rest else {}
    runs = tuple(
        StudyRun(run_name(label, seed), method, shared | own | {"seed": seed}, label)
        for seed in range(1, seeds + 1)
    )
    return Group(label, shared["task"], {}, (({}, runs),))


def _make(groups: list[Group], folder: Path, jobs: int, console: Console) -> None:
    """Train every student that is not there, several side by side."""
    runs = SharedRuns(folder, remember=False)
    for run in (run for group in groups for run in group.grid[0][1]):
        earlier = EarlierRun(RunFolder(folder / run.name), run.recipe(folder))
        if earlier.finished() is None and held_or_none(runs, run.name) is not None:
            (folder / run.name / RECORD_NAME).unlink()  # of a student that is damaged since
    seeds = sorted({run.settings["seed"] for group in groups for run in group.grid[0][1]})
    study = Study.model_validate(
        {
            "name": "quickstart",
            "title": "Quickstart",
            "tasks": [groups[0].task],
            "methods": {group.label: None for group in groups},
            "seeds": seeds,
        }
    )
    plan = StudyPlan(study, {}, tuple(groups))
    failed = carry_out(plan, runs, jobs=jobs, threads=1, console=console)
    if failed:
        raise LimbeckError([problem for one in failed for problem in one.problems])


def run_name(label: str, seed: int) -> str:
    """The folder of a student's run."""
    return f"{label.replace(' ', '-')}-s{seed}"


def _unlabelled_rows(task_name: str, labels: int, folder: Path) -> tuple[Path, int]:
    """The texts of all training rows that do not keep their labels, as a file; and their number."""
    task, splits = load_task(task_name, "pocket")
    rows = splits["train"]
    kept = Conditions(train_rows=labels).apply(rows, task)
    if len(kept) == len(rows):
        raise LimbeckError(
            f"labels: pocket {task_name} has {len(rows):,} training rows, and none would be without",
            "keep fewer labels",
        )
    others = np.setdiff1d(rows["index"][:], kept["index"][:])
    path = folder / "unlabelled.csv"
    text = rows.select(others).select_columns(list(task.text_columns)).to_pandas()
    write_whole(path, text.to_csv(index=False))
    return path, len(others)


def _passes(examples: int, rows: int) -> int:
    return max(1, round(examples / rows))


def _similarity(group: Group, folder: Path, live: Teacher) -> np.ndarray:
    """Teacher–student layer similarity of the last seed's finished student."""
    run = group.grid[0][1][-1]
    recipe = run.recipe(folder)
    trained = {"init": str(folder / run.name / "student"), "layers": None}
    student = recipe.student.model_copy(update=trained)
    matrix = finish.similarity(prepare(recipe.model_copy(update={"student": student}), live))
    assert matrix is not None
    return np.array(matrix, dtype=float)


def _present(
    records: list[Record],
    matrices: dict[str, np.ndarray],
    folder: Path,
    task: str,
    console: Console,
) -> Path:
    table = results(records)
    report = write_report(
        records,
        folder / "report.html",
        title=f"Quickstart: pocket {task}",
        similarity=matrices,
        table=replace(table, title="Results"),
    )
    console.print()
    console.print(terminal(table))
    console.print()
    console.print(summed_up(table), highlight=False)
    console.print(f"report: {report.resolve().as_uri()}", soft_wrap=True, highlight=False)
    return report


def results(records: list[Record]) -> ResultsTable:
    """The quickstart's table, from the records of its runs as `quickstart` names them."""
    return build_table(records, baseline=ALONE, facts=FACTS_SHOWN)


def summed_up(table: ResultsTable) -> str:
    """A summary of the table, in a sentence or two."""
    column = table.columns[0].key
    rows = {row.label: row.cells[column] for row in table.rows}
    alone, more = rows[ALONE], rows[UNLABELLED]
    assert alone.mean is not None and more.mean is not None
    said = (
        f"The same student reaches {more.mean:.1f} instead of {alone.mean:.1f} once it also learns its "
        "teacher's outputs on the unlabeled rows"
    )
    test = more.comparison
    if test is None or test.p is None:
        return f"{said}; one seed shows no more than that."
    chance = "p < 0.001" if test.p < 0.001 else f"p = {test.p:.3f}"
    said += f": {test.difference:+.1f}, {chance} (paired over {test.pairs} seeds)."
    return said if test.p < 0.05 else f"{said} That is no significant difference."
