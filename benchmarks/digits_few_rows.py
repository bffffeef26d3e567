"""How far a small net alone stays behind a larger one where training rows are few, and what kd gives back.

    python benchmarks/digits_few_rows.py OUT --rows 50 --seeds 1 2 3

The teacher, a wide ResNet, learns from all 1,297 training digits; the student, the smallest ResNet, from
a few of them, in as many steps whatever their number. Prints the table of all runs; minutes on two cores.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill
from limbeck.table import build_table, terminal

TEACHER, STUDENT = "wrn-16-2", "resnet-8"
METHODS = ("finetune", "kd", "kd-soft")
TEACHER_EPOCHS = 20
# Examples a student sees, every pass counted.
SEEN = 6_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder of all runs; finished ones stay")
    parser.add_argument("--rows", type=int, nargs="+", default=[50])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    given = parser.parse_args()
    torch.set_num_threads(1)  # nets this small lose time on handing work over
    teacher = run("finetune", given.out / "teacher", TEACHER, epochs=TEACHER_EPOCHS, seed=1)
    for rows in given.rows:
        few = {"train_rows": rows, "stratified": True, "epochs": SEEN / rows}
        records = [teacher]
        for method in METHODS:
            own = {} if method == "finetune" else {"teacher": str(given.out / "teacher")}
            for seed in given.seeds:
                path = given.out / f"{method}-{rows}-s{seed}"
                found = run(method, path, STUDENT, seed=seed, teacher_rows="any", **few, **own)
                records.append(found)
                last = found.last.primary if found.last else None
                print(f"{method}, {rows} rows, seed {seed}: last epoch {last:.1f}", flush=True)
        Console().print(terminal(build_table(records, baseline="finetune")))


def run(method: str, path: Path, net: str, **settings: Any) -> Record:
    recipe = Recipe.load(method, data="digits", **settings, **{"student.init": net})
    return distill(recipe, path, report=False).record


if __name__ == "__main__":
    main()
