"""What storing a teacher's outputs costs: building them, reading them, memory.

    python benchmarks/cache_cost.py [--rows 2000] [--fp32]

Building is compared with one forward pass of the teacher over the same length-sorted batches by Hugging Face's own
call, and so is writing as many bytes to a file by themselves; reading with the whole step. The methods ask for logits
and pooled states, but for `tinybert`'s first stage: attention and all token states. Private memory (USS) after an epoch
is compared with that of a file eight times as large. MiniLM's shape, 6 layers teach 3. Writes
`benchmarks/records/cache_cost.json`. Bars: 1.1, 2 %, no growth (64 MiB are noise).
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from transformers import set_seed

from limbeck.activations import Request
from limbeck.objectives import Objectives
from limbeck.outputs.building import build
from limbeck.outputs.cache import Store
from limbeck.outputs.columns import Ask
from limbeck.outputs.stored_teacher import CachedTeacher
from limbeck.recipe import Recipe
from limbeck.records import hardware, versions
from limbeck.students.execution import resolve_precision
from limbeck.support.files import write_whole
from limbeck.teachers.teacher import Teacher
from limbeck.training import DistillationConfig, DistillationTrainer
from overhead import arguments, train
from step_cost import model

RECORD = Path(__file__).parent / "records" / "cache_cost.json"
METHODS = ("kd", "pkd-skip", "rail-kd-l", "rail-kd-c", "alp-kd", "tinybert")
BARS = {"build": 1.1, "read": 0.02, "memory": 64.0}
BATCH = 32
TURNS = 9


def rows(count: int, seed: int = 0) -> Dataset:
    """Examples of lengths as GLUE has them: 8 to 64 tokens, most of them short."""
    random = np.random.default_rng(seed)
    lengths = np.clip(random.gamma(4.0, 6.0, count).astype(int), 8, 64)
    ids = [random.integers(1000, 30_000, length).tolist() for length in lengths]
    return Dataset.from_dict(
        {
            "input_ids": ids,
            "attention_mask": [[1] * len(row) for row in ids],
            "labels": random.integers(0, 2, count).tolist(),
            "index": list(range(count)),
        }
    )


def collate(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Padded to the longest."""
    width = max(len(row["input_ids"]) for row in examples)
    padded = {
        name: torch.tensor([row[name] + [0] * (width - len(row[name])) for row in examples])
        for name in ("input_ids", "attention_mask")
    }
    return padded | {n: torch.tensor([row[n] for row in examples]) for n in ("labels", "index")}


def sorted_batches(data: Dataset, size: int = 64) -> list[dict[str, torch.Tensor]]:
    """The longest first."""
    examples = sorted(data.to_list(), key=lambda row: -len(row["input_ids"]))
    return [collate(examples[start : start + size]) for start in range(0, len(examples), size)]


def wanted_of(recipe: Recipe, objectives: Objectives) -> Ask:
    """Everything the recipe may ask of the teacher."""
    return Ask(objectives.ever("teacher"), objectives.differences("teacher").items)


def build_cost(
    teacher: Teacher, data: Dataset, wanted: Ask, store: Store, precision: str
) -> dict[str, float]:
    """Building over a plain pass, the median of turns of both; writing alone over it; and MiB."""
    batches = sorted_batches(data)
    plain, building = [], []
    for _ in range(TURNS):
        began = time.perf_counter()
        for batch in batches:
            inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
            autocast = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
            with torch.no_grad(), autocast:
                teacher.model(**inputs)
        plain.append(time.perf_counter() - began)
        with store.writing("built") as folder:
            began = time.perf_counter()
            build(folder, teacher, batches, wanted, precision=precision)
            building.append((time.perf_counter() - began) / plain[-1])
    entry = store.find("built")
    assert entry is not None
    # By itself, not between the turns: the system goes on writing to disk after the call.
    writing = median(seconds_of_writing(entry.bytes, store.folder) for _ in range(TURNS))
    return {
        "ratio": median(building),
        "writing_alone": writing / median(plain),
        "mib": entry.bytes / 2**20,
    }


def seconds_of_writing(count: int, folder: Path) -> float:
    """A file of that many bytes, a mebibyte at a time."""
    piece = bytes(2**20)
    with tempfile.TemporaryFile(dir=folder) as file:
        began = time.perf_counter()
        for start in range(0, count, len(piece)):
            file.write(piece[: count - start])
        return time.perf_counter() - began


def read_share(
    recipe: Recipe, stored: CachedTeacher, student: Any, data: Dataset, precision: str
) -> float:
    """Seconds inside the stored teacher's call as a share of the training step."""
    steps = 40
    with tempfile.TemporaryDirectory() as folder:
        settings = arguments(folder, steps, BATCH, bf16=precision == "bf16")
        trainer = DistillationTrainer(
            student,
            stored,
            DistillationConfig.like(settings, objectives=recipe.objectives, group_by_length=True),
            train_dataset=data,
            data_collator=collate,
        )
        seconds = train(trainer)
    return trainer.progress.stopwatch.read()["teacher"] / (steps * sum(seconds) / len(seconds))


def private_mib() -> float:
    """Pages of this process alone (USS), as Linux counts them."""
    fields = dict(
        line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    )
    kib = sum(int(fields[name].split()[0]) for name in ("Private_Clean", "Private_Dirty"))
    return kib / 1024


def memory_of_reading(count: int, folder: Path) -> tuple[float, float]:
    """Growth of private memory by opening a file and reading two epochs of it, and its size: MiB."""
    teacher = Teacher(model(1, 384, "eager"))
    data = rows(count, seed=1)
    store = Store(folder)
    ask = Request.hidden([1])
    with store.writing("large") as part:
        batches = (collate(_listed(data, i, 64)) for i in range(0, count, 64))
        build(part, teacher, batches, Ask(ask), precision=resolve_precision("auto"))
    entry = store.find("large")
    assert entry is not None
    gc.collect()
    before = private_mib()
    stored = CachedTeacher(teacher, entry)
    order = np.random.default_rng(0).permutation(count)
    for start in range(0, count, BATCH):
        stored(collate(data.select(order[start : start + BATCH]).to_list()), ask)
    gc.collect()
    return private_mib() - before, entry.bytes / 2**20


def _listed(data: Dataset, start: int, size: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = data.select(range(start, min(start + size, len(data)))).to_list()
    return found


def main() -> None:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--fp32", action="store_true")
    args = parser.parse_args()
    set_seed(0)
    precision = "fp32" if args.fp32 else resolve_precision("auto")
    attention = "eager" if precision == "bf16" else "sdpa"
    data = rows(args.rows)
    teacher, student = Teacher(model(6, 384, attention)), model(3, 384, attention)
    table = Table(
        "method",
        "MiB",
        "build / pass",
        "writing alone",
        "read / step",
        title=f"Stored teacher outputs, {precision}",
    )
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for method in METHODS:
            recipe = Recipe.load(method).stages()[0].recipe
            trainer = DistillationTrainer(
                student,
                teacher,
                DistillationConfig.like(
                    arguments(folder, 1, 1, bf16=False), objectives=recipe.objectives
                ),
                train_dataset=data,
            )
            wanted = wanted_of(recipe, trainer.objectives)
            built = build_cost(teacher, data, wanted, store, precision)
            entry = store.find("built")
            assert entry is not None
            share = read_share(recipe, CachedTeacher(teacher, entry), student, data, precision)
            found[method] = built | {"read": share}
            table.add_row(
                method,
                f"{built['mib']:.0f}",
                f"{built['ratio']:.3f}",
                f"{built['writing_alone']:.3f}",
                f"{100 * share:.2f} %",
            )
        small, large = (memory_of_reading(n, Path(folder)) for n in (args.rows, 8 * args.rows))
    Console().print(table)
    memory = {f"{size:.0f} MiB file": growth for growth, size in (small, large)}
    print("private memory after reading, MiB:", {k: round(v, 1) for k, v in memory.items()})
    record = {
        "setting": vars(args),
        "precision": precision,
        "bars": BARS,
        "methods": found,
        "private_mib": memory,
        "versions": versions(),
        "hardware": hardware(),
    }
    write_whole(RECORD, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
