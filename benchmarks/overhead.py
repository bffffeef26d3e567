"""What distillation adds to a step: our `kd` and `pkd-skip` steps over the floor.

The floor is the same student's plain fine-tuning step by `transformers.Trainer`, plus one teacher forward
pass without gradients. All are measured in turns in one run, on the same batches, and medians are compared.
The bar is 1.10.

    python benchmarks/overhead.py [--rounds 5] [--steps 6] [--tokens 64] [--batch 32]

Writes `benchmarks/records/overhead.json`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from limbeck.records import hardware, versions
from limbeck.training import DistillationConfig, DistillationTrainer

RECORD = Path(__file__).parent / "records" / "overhead.json"
METHODS = ("kd", "pkd-skip")
BAR = 1.10


class StepTimes(TrainerCallback):
    """Seconds from the begin to the end of every optimization step."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock, self.seconds = clock, list[float]()
        self.began = 0.0

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        self.began = self.clock()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds.append(self.clock() - self.began)


def model(layers: int) -> BertForSequenceClassification:
    """MiniLM's shape with random weights: 384 wide, 12 heads, two classes."""
    config = BertConfig(
        hidden_size=384,
        num_hidden_layers=layers,
        num_attention_heads=12,
        intermediate_size=1536,
    )
    return BertForSequenceClassification(config)


def rows(count: int, tokens: int) -> Dataset:
    """Examples of one length, so that every batch costs the same."""
    ids = torch.randint(1000, 30_000, (count, tokens))
    columns = {
        "input_ids": ids.tolist(),
        "attention_mask": torch.ones_like(ids).tolist(),
        "labels": torch.randint(0, 2, (count,)).tolist(),
    }
    return Dataset.from_dict(columns).with_format("torch")


def arguments(folder: str, steps: int, batch: int, *, bf16: bool) -> TrainingArguments:
    """The same for the plain Trainer and ours."""
    return TrainingArguments(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=batch,
        bf16=bf16,
        use_cpu=not torch.accelerator.is_available(),
        save_strategy="no",
        logging_steps=1000,
        report_to=[],
        disable_tqdm=True,
    )


def train(trainer: Trainer) -> list[float]:
    """The step times of one short training, without the first step, which warms up."""
    times = StepTimes()
    trainer.add_callback(times)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return times.seconds[1:]


def teacher_forward(
    teacher: BertForSequenceClassification, data: Dataset, steps: int, batch: int, *, bf16: bool
) -> list[float]:
    """Seconds of one no-gradient forward pass by Hugging Face's own call, of the same batches."""
    teacher.eval()
    seconds = []
    for step in range(steps):
        part = data[step * batch : (step + 1) * batch]
        inputs = {name: part[name].to(teacher.device) for name in ("input_ids", "attention_mask")}
        began = time.perf_counter()
        with torch.no_grad(), torch.autocast(teacher.device.type, torch.bfloat16, enabled=bf16):
            teacher(**inputs)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


def measure(args: argparse.Namespace, *, bf16: bool) -> dict[str, float]:
    """Median seconds of each kind of step, all measured in turns."""
    set_seed(0)
    data = rows(args.batch * args.steps, args.tokens)
    student, teacher = model(args.layers), model(6)
    times: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        settings = arguments(folder, args.steps, args.batch, bf16=bf16)
        for _ in range(args.rounds):
            times["plain"] += train(Trainer(student, settings, train_dataset=data))
            teacher.to(student.device)
            times["teacher"] += teacher_forward(teacher, data, args.steps, args.batch, bf16=bf16)
            for method in METHODS:
                ours = DistillationTrainer(
                    student,
                    teacher,
                    DistillationConfig.like(settings, method=method),
                    train_dataset=data,
                )
                times[method] += train(ours)
    return {name: median(seconds) for name, seconds in times.items()}


def main() -> None:
    """Measure both precisions, print the ratios and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--layers", type=int, default=3, help="the student's")
    args = parser.parse_args()
    table = Table("precision", "plain ms", "teacher ms", *(f"{m} ms" for m in METHODS), *METHODS)
    record: dict[str, Any] = {
        "setting": vars(args),
        "bar": BAR,
        "versions": versions(),
        "hardware": hardware(),
        "precision": {},
    }
    for bf16 in (False, True):
        name = "bf16" if bf16 else "fp32"
        seconds = measure(args, bf16=bf16)
        floor = seconds["plain"] + seconds["teacher"]
        ratios = {method: seconds[method] / floor for method in METHODS}
        record["precision"][name] = {"seconds": seconds, "ratios": ratios}
        cells = [f"{seconds[key] * 1000:.0f}" for key in ("plain", "teacher", *METHODS)]
        table.add_row(name, *cells, *(f"{ratios[method]:.3f}" for method in METHODS))
    Console(width=110).print(table)
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
