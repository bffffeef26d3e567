"""Every single-teacher method on real SST-2, and five of them on few and on noisy rows of MRPC.

`sst2`: MiniLM-6 teacher, 3-layer students from the first layers of the pretrained encoder, which see 10,000 rows once;
methods of two stages split the same number of training examples 5:1. `mrpc-1000`: 1,000 training rows, four passes;
`mrpc-noise`: all rows, 30 % of their labels changed, two passes; teacher and student see the same rows, and students
start from the teacher's first layers (from the pretrained ones they stay on MRPC's plateau).

    python benchmarks/methods_study.py --model MINILM_DIR --data GLUE_DIR [--work DIR] [--seeds 3] [--parts sst2]

Resumable, one seed of everything first and the cheapest methods first, so that a stopped study is still a table:
`limbeck table benchmarks/records/methods_study.jsonl.gz --baseline finetune`.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limbeck.recipe import Recipe
from limbeck.recipe.catalog import names
from study import Cell, Study

COMMON: dict[str, Any] = {
    "lr": 1e-4,
    "batch_size": 32,
    "precision": "auto",
    # The faster one on CPU in bf16 (auto: where the processor has it), named so that every run computes alike.
    "attention": "eager",
}
# Fixed maps of two-layer students, one of a map to be given, and plain labels of an own start.
NOT_COMPARED = ("pkd", "pkd-1", "pkd-6", "pkd-12", "internal-kd-soft")
FEW = ("kd", "pkd-skip", "tinybert", "bert-emd", "cr-ild")
FIRST_STAGE_SHARE = 5 / 6
LAYERS = 3


@dataclass(frozen=True)
class Part:
    """One table of the study: a task and the state of its training rows."""

    task: str
    settings: dict[str, Any]
    teacher: dict[str, Any]
    student: dict[str, Any] = field(default_factory=dict)
    methods: tuple[str, ...] = field(default=())


_FROM_TEACHER = {"student.init": "teacher"}

PARTS = {
    "sst2": Part("sst2", {"epochs": 1, "train_rows": 10_000}, {"epochs": 3}),
    "mrpc-1000": Part("mrpc", {"epochs": 4, "train_rows": 1000}, {"epochs": 5}, _FROM_TEACHER, FEW),
    "mrpc-noise": Part(
        "mrpc", {"epochs": 2, "label_noise": 0.3}, {"epochs": 3}, _FROM_TEACHER, FEW
    ),
}


def compared(part: Part) -> tuple[str, ...]:
    """The methods of a part, those without a teacher's layers first."""
    return part.methods or tuple(
        name
        for name in names()
        if name not in NOT_COMPARED and _reads_sentences_of_one_teacher(Recipe.load(name))
    )


def _reads_sentences_of_one_teacher(recipe: Recipe) -> bool:
    return recipe.kind is None and recipe.team is None


def teacher_cell(name: str, part: Part, model: str, data: str) -> Cell:
    """Fine-tune the whole encoder on the part's rows."""
    settings = {
        **COMMON,
        **part.settings,
        **part.teacher,
        "task": part.task,
        "data": data,
        "seed": 1,
    }
    return Cell(f"{name}-teacher", "finetune", {**settings, "student.init": model})


def student_cell(name: str, part: Part, method: str, seed: int, args: argparse.Namespace) -> Cell:
    """One student; of two stages the first has five sixths of its training examples."""
    settings: dict[str, Any] = {
        **COMMON,
        **part.settings,
        "task": part.task,
        "data": args.data,
        "seed": seed,
        "teacher": str(args.work / f"{name}-teacher"),
        "student.init": args.model,
        **part.student,
        "student.layers": LAYERS,
        "student.pick": "first",
    }
    cost = 1.0
    if Recipe.load(method).first_stage is not None:
        cost = 2.0
        epochs = settings["epochs"]
        settings |= {
            "epochs": epochs * (1 - FIRST_STAGE_SHARE),
            "first_stage.epochs": epochs * FIRST_STAGE_SHARE,
            "first_stage.lr": COMMON["lr"],
            "first_stage.batch_size": COMMON["batch_size"],
        }
    return Cell(f"{name}-{method}-s{seed}", method, settings, cost)


def main() -> None:
    """Teachers, then one seed of every method after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of the pretrained 6-layer encoder")
    parser.add_argument("--data", required=True, help="GLUE folder")
    parser.add_argument("--work", type=Path, default=Path("runs/methods_study"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    args = parser.parse_args()
    study = Study("methods_study", args.work)
    study.run([teacher_cell(name, PARTS[name], args.model, args.data) for name in args.parts])
    for seed in range(1, args.seeds + 1):
        for name in args.parts:
            part = PARTS[name]
            cells = [student_cell(name, part, method, seed, args) for method in compared(part)]
            study.run(cells, args.work / f"{name}-teacher")


if __name__ == "__main__":
    main()
