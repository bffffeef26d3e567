"""Teams of CNNs on images: a small CNN with few digits, from one of five larger CNNs or from all of them.

The teachers, five ResNets and wide ResNets, learn from all 1,297 training digits of scikit-learn; the student, the
smallest ResNet, from 50 of them, so that alone it stays far behind. Each method of several teachers, `kd` and `kd-soft`
from the best teacher, and labels alone; as many steps for all.

    python benchmarks/team_images.py [--work DIR] [--rows 50] [--seeds 3]

Minutes on two cores, offline. Resumable: `limbeck table benchmarks/records/team_images.jsonl.gz --baseline finetune`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from limbeck.records import read_collection
from study import Cell, Study, records_of

TEAM = ("resnet-14", "resnet-20", "resnet-32", "wrn-16-1", "wrn-16-2")
STUDENT = "resnet-8"
SEVERAL = (
    *("skd-uniform", "skd-teacher-rank", "skd-student-rank", "skd-adaptive"),
    *("wkd-uniform", "wkd-teacher-rank", "wkd-student-rank", "mt-bert", "takd"),
)
TEACHER_EPOCHS = 20
# Examples a student sees, every pass counted.
SEEN = 6_000
# Rows whom to draw is learned on; a small part of few rows.
HOLDOUT = 10


def teacher_cells() -> list[Cell]:
    """Each on all rows."""
    settings = {"data": "digits", "epochs": TEACHER_EPOCHS, "seed": 1}
    return [
        Cell(
            f"teacher-{net}", "finetune", {**settings, "student.init": net}, label=f"teacher {net}"
        )
        for net in TEAM
    ]


def best_teacher() -> str:
    """The one of the highest dev score."""
    records = read_collection(records_of("team_images"))
    found = {net: records[f"teacher-{net}"] for net in TEAM}
    return max(TEAM, key=lambda net: found[net].scores["dev"]["primary"] or 0)


def student_cells(seed: int, args: argparse.Namespace) -> list[Cell]:
    """One seed of every method; those of student-rank share the students of each teacher."""
    folders = {net: str(args.work / f"teacher-{net}") for net in TEAM}
    base: dict[str, Any] = {
        "data": "digits",
        "train_rows": args.rows,
        "stratified": True,
        "teacher_rows": "any",
        "epochs": SEEN / args.rows,
        "student.init": STUDENT,
        "seed": seed,
    }
    cells = [Cell(f"finetune-s{seed}", "finetune", base)]
    for method in ("kd", "kd-soft"):
        given = {**base, "teacher": folders[best_teacher()]}
        cells.append(Cell(f"{method}-s{seed}", method, given))
    for method in SEVERAL:
        given = {**base, "teachers": list(folders.values())}
        if "student-rank" in method:
            shared = str(args.work / f"students-s{seed}")
            given |= {"team.student_runs": shared, "team.student_epochs": SEEN / args.rows}
        if method == "skd-adaptive":
            given["team.holdout"] = HOLDOUT
        cells.append(Cell(f"{method}-s{seed}", method, given, 1 + ("student-rank" in method)))
    return cells


def main() -> None:
    """Teachers, then one seed of every method after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("runs/team_images"))
    parser.add_argument("--rows", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)  # CNNs this small lose time on handing work over
    study = Study("team_images", args.work)
    study.run(teacher_cells())
    for seed in range(1, args.seeds + 1):
        study.run(student_cells(seed, args))


if __name__ == "__main__":
    main()
