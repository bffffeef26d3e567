"""Few labels and much text: what a student gains from rows without labels, on real GLUE.

A task's training rows are split by a seed: n of them keep their labels, all others lose them. On the labeled rows
alone MiniLM-6 is fine-tuned: the teacher of that seed. Its 3-layer students learn from

- `labels alone`: the labeled rows, fine-tuned (no teacher);
- `labels alone, teacher's layers`: the same, started as all below are;
- `teacher's logits`: the teacher's logits of the labeled rows;
- `augmented`: its logits of ten augmented examples of every labeled row too;
- `pseudo-labels`: the teacher's predicted classes of all rows as if they were labels (self-training);
- `unlabelled`: the teacher's logits of all rows;
- `unlabelled, layers`: soft labels of all rows and RAIL-KD's layer-wise term.

`labels alone` starts from the first layers of the pretrained encoder, all others from those of the teacher. Of the
rows without labels `--unlabelled-rows 10000` takes as many as augmentation makes of 1,000. MiniLM has no head of a
masked language model that could propose words for augmented examples: they are those of the nearest vectors
(`nearest_words.py`).

    python benchmarks/few_labels.py --model MINILM_DIR --data GLUE_DIR [--work DIR] [--tasks sst2] [--labels 1000]
        [--conditions "labels alone" unlabelled] [--unlabelled-rows 10000] [--seeds 5]

Resumable, one seed of everything first. `limbeck table benchmarks/records/few_labels.jsonl.gz` prints the records;
`python benchmarks/few_labels_table.py` the share of the gap that each closes, with its tests, and the picture.
"""

from __future__ import annotations

import argparse
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from limbeck.data import load_task
from limbeck.support.errors import LimbeckError
from nearest_words import augmented_rows
from study import Cell, Study

TASKS = {"sst2": "SST-2", "mrpc": "MRPC", "cola": "CoLA"}
LABELS = (200, 1000, 5000)
COMMON: dict[str, Any] = {
    "batch_size": 32,
    "precision": "auto",
    # The faster one on CPU in bf16 (auto: where the processor has it), named so that every run computes alike.
    "attention": "eager",
}
# Passes over the labeled rows: fewer rows are seen more often, and the best pass on dev is kept.
PASSES = {200: 20, 1000: 10, 5000: 5}
TEACHER = {"lr": 5e-5, "batch_size": 16}
STUDENT = {"lr": 1e-4, "student.pick": "first", "student.layers": 3}
# Examples that students of more rows than the labelled ones read at least: more passes where there are few rows.
EXAMPLES = 20_000
AUGMENTED = 10


@dataclass(frozen=True)
class Condition:
    """What a student learns from: a method, whether also from rows without labels, and whose first layers it has."""

    method: str
    unlabelled: bool = False
    from_teacher: bool = True
    augmented: bool = False


BASELINE = "labels alone"
CONDITIONS = {
    BASELINE: Condition("finetune", from_teacher=False),
    "labels alone, teacher's layers": Condition("finetune"),
    "teacher's logits": Condition("logit-mse"),
    "unlabelled": Condition("logit-mse", unlabelled=True),
    "pseudo-labels": Condition("pseudo-label", unlabelled=True),
    "unlabelled, layers": Condition("rail-kd-l", unlabelled=True),
    "augmented": Condition("logit-mse", augmented=True),
}


@dataclass(frozen=True)
class Split:
    """A task's rows, n of them with labels: a folder of Parquet files made once."""

    task: str
    labels: int
    seed: int
    work: Path
    data: str

    @property
    def name(self) -> str:
        """Of its cells, to begin with."""
        return f"{self.task}-{self.labels}-s{self.seed}"

    @property
    def folder(self) -> Path:
        """Where its files lie."""
        return self.work / "rows" / self.name

    def make(self) -> None:
        """Write the files that are not there."""
        if (self.folder / "dev.parquet").exists():
            return
        task, splits = load_task(self.task, self.data)
        train = splits["train"].remove_columns("index")
        if self.labels >= len(train):
            raise SystemExit(
                f"{self.task} has {len(train)} rows: --labels {self.labels} leaves none"
            )
        order = np.random.default_rng(self.seed).permutation(len(train))
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(train.select(np.sort(order[: self.labels])), self.folder / "train.parquet")
        rest = train.select(np.sort(order[self.labels :])).select_columns(list(task.text_columns))
        dev = splits["dev"].remove_columns("index")
        known = set(zip(*(dev[column] for column in task.text_columns), strict=True))
        texts = zip(*(rest[column] for column in task.text_columns), strict=True)
        fresh = [place for place, row in enumerate(texts) if row not in known]
        _write(rest.select(fresh), self._rest)
        _write(dev, self.folder / "dev.parquet")

    @property
    def _rest(self) -> Path:
        return self.folder / "unlabelled" / "rest.parquet"

    def unlabelled(self, count: int | None) -> Path:
        """The file of the rows without labels: all of them, or `count` drawn by the seed."""
        if count is None:
            return self._rest
        path = self.folder / "unlabelled" / f"{count}.parquet"
        if not path.exists():
            rows = _read(self._rest)
            order = np.random.default_rng([self.seed, count]).permutation(len(rows))
            _write(rows.select(np.sort(order[:count])), path)
        return path

    @property
    def settings(self) -> dict[str, Any]:
        """Of every run on these rows."""
        return {**COMMON, "task": self.task, "data": str(self.folder), "seed": self.seed}

    def augmented(self, model: str) -> Path:
        """The file of augmented examples of the labeled rows, without their labels."""
        path = self.folder / "unlabelled" / "augmented.parquet"
        if not path.exists():
            task, _ = load_task(self.task, self.data)
            rows = _read(self.folder / "train.parquet").select_columns(list(task.text_columns))
            _write(augmented_rows(rows, model, AUGMENTED), path)
        return path


def _read(path: Path) -> Dataset:
    return Dataset.from_parquet(str(path), keep_in_memory=True)


def _write(rows: Dataset, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows.to_parquet(path)


def teacher_cell(split: Split, model: str) -> Cell:
    """The whole encoder, fine-tuned on the labeled rows."""
    settings = {**split.settings, **TEACHER, "epochs": PASSES[split.labels] // 2}
    return Cell(
        f"{split.name}-teacher", "finetune", settings | {"student.init": model}, label="teacher"
    )


@dataclass(frozen=True)
class Student:
    """One student of a split's teacher.

    Attributes:
        name: of its condition.
        count: rows without labels that are taken; None for all.
        passes: over all its rows, where these are more than the labelled ones; more where they are few.
    """

    split: Split
    name: str
    count: int | None
    passes: int

    @property
    def condition(self) -> Condition:
        """What it learns from."""
        return CONDITIONS[self.name]

    @property
    def label(self) -> str:
        """What its row is called in tables."""
        limited = self.condition.unlabelled and self.count is not None
        return f"{self.name} ({self.count:,} rows)" if limited else self.name

    def cell(self, model: str) -> Cell:
        """Its run."""
        settings = {**self.split.settings, **STUDENT, "epochs": PASSES[self.split.labels]}
        settings["student.init"] = "teacher" if self.condition.from_teacher else model
        settings["teacher"] = str(self.split.work / f"{self.split.name}-teacher")
        more = self._more(model)
        if more is not None:
            rows = self.split.labels + len(_read(more))
            settings |= {
                "unlabelled": [str(more)],
                "unlabelled_duplicates": "drop",
                "epochs": max(self.passes, math.ceil(EXAMPLES / rows)),
                "batch_size": 64,
            }
        slug = re.sub(r"[ (]+", "-", re.sub(r"[,')]", "", self.label))
        return Cell(f"{self.split.name}-{slug}", self.condition.method, settings, label=self.label)

    def _more(self, model: str) -> Path | None:
        """The file of its rows beside the labelled ones."""
        if self.condition.augmented:
            return self.split.augmented(model)
        return self.split.unlabelled(self.count) if self.condition.unlabelled else None


def main() -> None:
    """Teachers and students of one seed after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of the pretrained 6-layer encoder")
    parser.add_argument("--data", required=True, help="GLUE folder")
    parser.add_argument("--work", type=Path, default=Path("runs/few_labels"))
    parser.add_argument("--tasks", nargs="+", default=["sst2"], choices=list(TASKS))
    parser.add_argument("--labels", nargs="+", type=int, default=list(LABELS), choices=LABELS)
    parser.add_argument("--conditions", nargs="+", default=list(CONDITIONS), choices=CONDITIONS)
    parser.add_argument("--passes", type=int, default=2, help="over rows without labels")
    parser.add_argument(
        "--unlabelled-rows",
        type=int,
        metavar="N",
        help="rows without labels to take (default: all)",
    )
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    study = Study("few_labels", args.work.resolve())
    for seed in range(1, args.seeds + 1):
        for task in args.tasks:
            for labels in args.labels:
                _run(study, Split(task, labels, seed, study.work, args.data), args)


def _run(study: Study, split: Split, args: argparse.Namespace) -> None:
    """The teacher of a split and its students."""
    split.make()
    teacher = teacher_cell(split, args.model)
    study.run([teacher])
    students = [Student(split, name, args.unlabelled_rows, args.passes) for name in args.conditions]
    cells = [student.cell(args.model) for student in students]
    if study.lacks(cells):
        study.train_again(teacher)
    for cell in cells:
        try:
            study.run([cell], study.work / teacher.name)
        except LimbeckError as error:  # of a teacher that is no better than the commonest class
            print(f"{cell.name}: {error}", flush=True)


if __name__ == "__main__":
    main()
