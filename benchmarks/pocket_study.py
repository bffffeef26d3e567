"""Seven ways to train a shallower student on two pocket tasks, against each other.

A 12-layer teacher trained from scratch on all rows; 6-, 4- and 2-layer students from its first layers, which see
8,000 rows once: more, and the deeper ones all reach the teacher. Three seeds; bf16. Needs nothing but limbeck.

    python benchmarks/pocket_study.py [--work DIR] [--seeds 3] [--tasks sst2 cola]

Resumable: run it again and it goes on. `limbeck table benchmarks/records/pocket_study.jsonl.gz` prints what there is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from study import Cell, Study, student_cells

TASKS = ("sst2", "cola")
COMMON = {"data": "pocket", "precision": "auto"}
LAYERS = (2, 4, 6)
STUDENT = {"student.init": "teacher", "train_rows": 8000, "epochs": 1}


def main() -> None:
    """Teachers first, then the students of one seed after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("runs/pocket_study"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    args = parser.parse_args()
    study = Study("pocket_study", args.work)
    for task in args.tasks:
        settings = {**COMMON, "task": task, "seed": 1, "student.init": "pocket"}
        study.run([Cell(f"{task}-teacher", "finetune", settings)])
    for seed in range(1, args.seeds + 1):
        for task in args.tasks:
            teacher = args.work / f"{task}-teacher"
            settings = {**COMMON, **STUDENT, "teacher": str(teacher)}
            study.run(student_cells(task, settings, layers=LAYERS, seed=seed), teacher)


if __name__ == "__main__":
    main()
