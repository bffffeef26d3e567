"""How much a student suffers from wrong teacher outputs, and what confidence helps: real SST-2, small.

A teacher is fine-tuned on some rows and labels others, which the students learn from without their labels. Of
0, 20 and 40 % of these rows the teacher's logits are turned round, either as they are (a teacher that is wrong and
sure of it) or divided by ten (wrong, and unsure). Students of three layers learn from the stored outputs by
kd-soft, with `min_confidence`, and by LLKD's weights; all else is the same.

    python benchmarks/noisy_teachers.py --model DIR --data GLUE [--rows 2000] [--seeds 1] [--work DIR] [--record FILE]

Writes `benchmarks/records/noisy_teachers.json`, which `noisy_labels_table.py` prints; runs that are there are not
made again, so that more seeds can be added later with the same `--work`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from rich.console import Console
from rich.table import Table

import limbeck
from limbeck.data import load_task
from limbeck.preflight import ask_teacher
from limbeck.records import hardware, versions
from limbeck.students import read_tokenizer
from limbeck.support.files import write_whole
from limbeck.tasks import Task

RECORD = Path(__file__).parent / "records" / "noisy_teachers.json"
METHODS: dict[str, dict[str, Any]] = {
    "kd-soft": {},
    "min_confidence .8": {"min_confidence": 0.8},
    "LLKD's weights": {"example_weights": {"use": "llkd"}},
}
# The widest apart first: a benchmark that is stopped has said most.
NOISE = ((0.0, "none"), (0.4, "sure"), (0.4, "unsure"), (0.2, "sure"), (0.2, "unsure"))
LENGTH = 64


def main() -> None:
    given = arguments()
    task, splits = load_task("sst2", given.data)
    chosen = np.random.default_rng(0).permutation(len(splits["train"]))[: 2 * given.rows]
    taught, rows = (splits["train"].select(part) for part in np.split(chosen, 2))
    files = {name: as_lines(task, part) for name, part in (("t", taught), ("s", rows))}
    dev = as_lines(task, splits["dev"])
    shared = {"task": "sst2", "epochs": given.epochs, "batch_size": 32, "max_length": LENGTH}
    shared |= {"lr": 2e-4, "precision": "auto"}
    teacher = limbeck.distill(
        "finetune",
        out=given.work / "teacher",
        report=False,
        data=folder_of(given.work / "teacher-data", files["t"], dev),
        **{**shared, "student.init": str(given.model)},
    )
    tokenizer = read_tokenizer(teacher.path / "student")
    said = ask_teacher(task, teacher.student, tokenizer, rows, LENGTH, rows=len(rows))
    folder = folder_of(given.work / "student-data", files["s"], dev)
    found = []
    for share, how in NOISE:
        outputs = given.work / f"outputs-{how}-{share:g}.jsonl"
        write_outputs(outputs, task, rows, corrupted(said.predictions, share, how))
        for method, changes in METHODS.items():
            for seed in range(1, given.seeds + 1):
                run = limbeck.distill(
                    "kd-soft",
                    out=given.work / f"{method}-{how}-{share:g}-{seed}".replace(" ", "-"),
                    report=False,
                    data=folder,
                    outputs=str(outputs),
                    seed=seed,
                    **{
                        **shared,
                        **changes,
                        "student.init": str(given.model),
                        "student.pick": "first",
                        "student.layers": 3,
                    },
                )
                counted = run.record.epochs[-1].train.get("counted")
                score = run.record.scores["dev"]["accuracy"]
                found.append(
                    {
                        "method": method,
                        "noise": share,
                        "how": how,
                        "seed": seed,
                        "counted": counted,
                        "dev": score,
                    }
                )
                show(found, teacher.scores["dev"]["accuracy"])
                keep(given, teacher.scores["dev"], found)


def keep(given: argparse.Namespace, teacher: dict[str, Any], found: list[dict[str, Any]]) -> None:
    """The record so far."""
    record = {
        "rows": given.rows,
        "epochs": given.epochs,
        "teacher": teacher,
        "runs": found,
        "versions": versions(),
        "hardware": hardware(),
    }
    write_whole(given.record, json.dumps(record, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="a pretrained encoder")
    parser.add_argument("--data", type=Path, required=True, help="a folder in GLUE's layout")
    parser.add_argument("--work", type=Path, default=Path("noisy_teachers"))
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--seeds", type=int, default=1)
    return parser.parse_args()


def texts_and_labels(task: Task, rows: Dataset) -> Iterator[tuple[str, str]]:
    (column,) = task.text_columns
    for text, label in zip(rows[column], rows[task.label_column], strict=True):
        yield text, task.labels[label]


def as_lines(task: Task, rows: Dataset) -> str:
    """The rows as JSON lines, by the task's own names."""
    (column,) = task.text_columns
    lines = [
        json.dumps({column: text, task.label_column: label})
        for text, label in texts_and_labels(task, rows)
    ]
    return "\n".join(lines) + "\n"


def folder_of(folder: Path, train: str, dev: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("train", train), ("dev", dev)):
        (folder / f"{name}.jsonl").write_text(content, encoding="utf-8")
    return str(folder)


def corrupted(logits: np.ndarray, share: float, how: str) -> np.ndarray:
    """The logits with the classes of a share of the rows turned round; the same rows for every method."""
    found = np.array(logits, dtype=np.float64)
    wrong = np.random.default_rng(1).random(len(found)) < share
    found[wrong] = found[wrong][:, ::-1] * (0.1 if how == "unsure" else 1.0)
    return found


def write_outputs(path: Path, task: Task, rows: Dataset, logits: np.ndarray) -> None:
    """A row of equal text as another keeps the outputs of the first."""
    (column,) = task.text_columns
    known: dict[str, list[float]] = {}
    for text, row in zip(rows[column], logits.tolist(), strict=True):
        known.setdefault(text, row)
    lines = [
        json.dumps({column: text, "logits": dict(zip(task.labels, row, strict=True))})
        for text, row in known.items()
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def show(found: list[dict[str, Any]], teacher: float) -> None:
    table = Table(
        "method", *(f"{share:.0%} {how}" for share, how in NOISE), title=f"teacher {teacher:.1f}"
    )
    for method in METHODS:
        cells = []
        for share, how in NOISE:
            own = [
                run
                for run in found
                if (run["method"], run["noise"], run["how"]) == (method, share, how)
            ]
            counted = [run["counted"] for run in own if run["counted"] is not None]
            says = f" ({mean(counted):.0%})" if counted else ""
            cells.append(f"{mean(run['dev'] for run in own):.1f}{says}" if own else "")
        table.add_row(method, *cells)
    Console().print(table)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
