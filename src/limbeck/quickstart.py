"""`limbeck quickstart`: a teacher, a student alone, and the same student distilled in two ways.

Everything is generated and trained here, with no network, in minutes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from limbeck.recipe import Recipe
from limbeck.reporting.pages import write_report
from limbeck.reporting.records import Record
from limbeck.reporting.tables import build_table, terminal
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.run.run_report import similarity
from limbeck.teachers.outputs import RememberingTeacher
from limbeck.teachers.teacher import Teacher

FACTS_SHOWN = ("layers", "parameters", "flops", "latency", "kept")
METHODS = ("finetune", "kd", "rail-kd-c")
LAYERS = 4
TASK = "sst2"
# What keeps ten runs within minutes on two cores; `limbeck finetune` and `distill` train longer.
TEACHER_EPOCHS = 3
STUDENT = {"epochs": 2, "train_rows": 8_000, "teacher_rows": "any", "batch_size": 64}


def quickstart(
    out: str | Path = "runs/quickstart", *, task: str = TASK, seeds: int = 3, show: bool = True
) -> Path:
    """Run it, print the table and write the report; returns the report's path.

    Args:
        out: folder of all runs; what is finished there is not run again.
        task: a pocket task.
        seeds: runs of each student, with seeds 1, 2, …; the teacher has one.
        show: progress and the table on the terminal.
    """
    folder = Path(out)
    console = Console(quiet=not show, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 100
    console.print(f"limbeck quickstart: pocket {task}, teacher first", highlight=False)
    # Matrices this small gain nothing from a second thread and lose time on handing work over.
    torch.set_num_threads(1)
    shared = {"task": task, "data": "pocket"}
    scratch = {"student.init": "pocket", "epochs": TEACHER_EPOCHS, "seed": 1}
    teacher = distill(Recipe.load("finetune", **shared, **scratch), folder / "teacher", show=show)
    live = RememberingTeacher(Teacher.load(teacher.path))
    records, matrices = [teacher.record], {}
    for method in METHODS:
        for seed in range(1, seeds + 1):
            recipe = Recipe.load(method, **shared, seed=seed, **_student(teacher.path))
            path = folder / f"{method}-s{seed}"
            done = distill(recipe, path, show=show, report=False, live_teacher=live)
            records.append(done.record)
        matrices[method] = _similarity(recipe, path, live)
    return _present(records, matrices, folder, task, console)


def _student(teacher: Path) -> dict[str, Any]:
    """The student of every method: the teacher's first layers."""
    return {
        "teacher": str(teacher),
        "student.init": "teacher",
        "student.layers": LAYERS,
        **STUDENT,
    }


def _similarity(recipe: Recipe, run: Path, live: Teacher) -> np.ndarray:
    """Teacher–student layer similarity of the last seed's finished student."""
    finished = recipe.model_copy(
        update={
            "student": recipe.student.model_copy(
                update={"init": str(run / "student"), "layers": None}
            )
        }
    )
    matrix = similarity(prepare(finished, live))
    assert matrix is not None
    return matrix


def _present(
    records: list[Record],
    matrices: dict[str, np.ndarray],
    folder: Path,
    task: str,
    console: Console,
) -> Path:
    report = write_report(
        records,
        folder / "report.html",
        title=f"Quickstart: pocket {task}",
        similarity=matrices,
        baseline="finetune",
    )
    console.print()
    console.print(terminal(build_table(records, baseline="finetune", facts=FACTS_SHOWN)))
    console.print(f"report: {report.resolve().as_uri()}", soft_wrap=True, highlight=False)
    return report
