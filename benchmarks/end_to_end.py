"""How long distillation takes, to the same number of passes, beside what else one would run.

    pip install 'limbeck[benchmarks]'
    python benchmarks/end_to_end.py --model MINILM_DIR --data GLUE_DIR [--tasks sst2 mrpc] [--rows 10000] [--epochs 3]

A 3-layer student from the first layers of the 6-layer teacher, batches of 32, the same rows, all timed on this machine
in one run, from tokenised rows to the last step, without scoring and saving:

- `ours`: `kd` as a limbeck run executes it (bf16 where the processor has it), the teacher's outputs stored inside
  the measured time;
- `plain loop`: the student alone on exactly our batches, in our precision and attention;
- `plain loop + teacher`: the same and one length-sorted pass of the teacher over the rows: the floor of any
  distillation that asks the teacher once;
- `trainer`: `transformers.Trainer` fine-tuning the student, its default arguments but for the batch size (fp32);
- `trainer, bf16`: the same in our precision;
- `textbrewer`: TextBrewer's `GeneralDistiller`, teacher live, padded to the longest, fp32 (its fp16 needs CUDA);
- `papers`: as the papers' released code: padding to 128, fp32, eager attention with all outputs, teacher live.

The last two are timed over `--sampled` steps and extrapolated; nothing else is. Dev scores are of the runs that ran
to their end. Writes `benchmarks/records/end_to_end.json`; bars are printed with the ratios.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.utils.data import DataLoader
from transformers import (
    DataCollatorWithPadding,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    get_linear_schedule_with_warmup,
    set_seed,
)

from limbeck.data import EpochSampler
from limbeck.recipe import Recipe
from limbeck.records import hardware, versions
from limbeck.records.facts import Execution
from limbeck.run import distill
from limbeck.run.begin import resolve
from limbeck.run.prepare import prepare
from limbeck.run.prepared import Prepared
from limbeck.run.rows import load_rows
from limbeck.run.run_folder import RunFolder
from limbeck.run.stored_outputs import with_stored_outputs
from limbeck.support.files import write_whole
from limbeck.training import DistillationConfig, DistillationTrainer, training_arguments
from peers import BATCH, LR, papers, textbrewer

RECORD = Path(__file__).parent / "records" / "end_to_end.json"
READ = ("input_ids", "attention_mask", "token_type_ids", "labels")
LAYERS = 3
# What ours may take at most of each.
BARS = {
    "plain loop": 1.10,
    "plain loop + teacher": 1.10,
    "trainer": 0.7,
    "trainer, bf16": 1.0,
    "textbrewer": 0.6,
    "papers": 0.15,
}


def recipe_of(task: str, teacher: Path, args: argparse.Namespace) -> Recipe:
    """The run all of them do."""
    return Recipe.load(
        "kd",
        task=task,
        data=args.data,
        teacher=str(teacher),
        train_rows=rows_of(task, args),
        epochs=args.epochs,
        batch_size=BATCH,
        lr=LR,
        precision="auto",
        seed=args.seed,
        student={"init": "teacher", "layers": LAYERS, "pick": "first"},
    )


def score(prepared: Prepared, model: Any) -> float:
    """Primary dev score of a trained student."""
    settings = TrainingArguments(
        tempfile.gettempdir(),
        per_device_eval_batch_size=64,
        use_cpu=not torch.accelerator.is_available(),
        report_to=[],
        disable_tqdm=True,
    )
    trainer = DistillationTrainer(
        model,
        None,
        DistillationConfig.like(settings, method="finetune", compact_metrics=True),
        train_dataset=prepared.selecting,
        eval_dataset=prepared.selecting,
        data_collator=prepared.collator,
        compute_metrics=prepared.compute_metrics,
    )
    return float(trainer.evaluate()["eval_primary"])


def ours(recipe: Recipe, folder: Path) -> tuple[float, float, Execution]:
    """Seconds and dev score of limbeck's own run, and how it was executed."""
    set_seed(recipe.seed)
    prepared = prepare(recipe)
    began = time.perf_counter()
    prepared = resolve(prepared, RunFolder(folder / "run"), {}, fresh=True)
    prepared = with_stored_outputs(prepared, show=False)
    inputs, settled = prepared.last, prepared.recipe
    settings = training_arguments(settled, folder / "checkpoints", select=False)
    settings.save_strategy = "no"
    trainer = DistillationTrainer(
        prepared.student,
        inputs.teacher,
        DistillationConfig.like(
            settings, objectives=settled.objectives, group_by_length=settled.groups_by_length
        ),
        train_dataset=prepared.train.encoded,
        data_collator=prepared.collator,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return time.perf_counter() - began, score(prepared, prepared.student), prepared.execution


def plain_loop(recipe: Recipe, execution: Execution) -> tuple[float, float]:
    """The student's own steps on exactly our batches and nothing else."""
    set_seed(recipe.seed)
    prepared = prepare(recipe)
    student = prepared.student.train()
    student.set_attn_implementation(execution.attention["student"])
    bf16 = execution.precision == "bf16"
    data = prepared.train.encoded
    lengths = [len(ids) for ids in data["input_ids"]]
    sampler = EpochSampler(data, recipe.seed, lengths=lengths, batch_size=BATCH)
    loader = DataLoader(data, BATCH, sampler=sampler, collate_fn=prepared.collator)
    began = time.perf_counter()
    optimizer = torch.optim.AdamW(student.parameters(), lr=LR, weight_decay=0.0, fused=True)
    steps = len(loader) * int(recipe.epochs)
    schedule = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    for epoch in range(int(recipe.epochs)):
        sampler.set_epoch(epoch)
        for batch in loader:
            inputs = {name: batch[name] for name in READ if name in batch}
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = student(**inputs).loss
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    return time.perf_counter() - began, score(prepared, student)


def teacher_pass(recipe: Recipe, execution: Execution) -> float:
    """Seconds of one pass of the teacher over the training rows, longest first."""
    prepared = prepare(recipe)
    model = prepared.named[0].teacher.model
    model.set_attn_implementation(execution.attention["teacher"])
    data = prepared.train.encoded
    order = np.argsort([-len(ids) for ids in data["input_ids"]], kind="stable")
    loader = DataLoader(data.select(order), 64, collate_fn=prepared.collator)
    began = time.perf_counter()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, execution.precision == "bf16"):
        for batch in loader:
            model(**{name: batch[name] for name in READ if name in batch and name != "labels"})
    return time.perf_counter() - began


def trainer(recipe: Recipe, folder: Path, *, bf16: bool) -> tuple[float, float]:
    """`transformers.Trainer` with its defaults but for batch size, rate and precision."""
    set_seed(recipe.seed)
    prepared = prepare(recipe)
    settings = TrainingArguments(
        str(folder / "plain"),
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=BATCH,
        learning_rate=LR,
        bf16=bf16,
        use_cpu=not torch.accelerator.is_available(),
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=recipe.seed,
    )
    plain = Trainer(
        prepared.student,
        settings,
        train_dataset=prepared.train.encoded.remove_columns("index"),
        data_collator=DataCollatorWithPadding(prepared.tokenizer),
    )
    plain.remove_callback(PrinterCallback)
    began = time.perf_counter()
    plain.train()
    return time.perf_counter() - began, score(prepared, prepared.student)


def rows_of(task: str, args: argparse.Namespace) -> int | None:
    """How many training rows are sampled; None for all, where there are not more than asked for."""
    if args.rows is None:
        return None
    _, rows = load_rows(Recipe.load("finetune", task=task, data=args.data))
    return args.rows if args.rows < len(rows["train"]) else None


def measure(task: str, args: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Everything about one task."""
    teacher = work / f"{task}-teacher-{args.rows or 'all'}"
    settings = {"task": task, "data": args.data, "epochs": 3, "lr": LR, "precision": "auto"}
    distill(
        Recipe.load(
            "finetune",
            **settings,
            train_rows=rows_of(task, args),
            student={"init": args.model},
            seed=1,
        ),
        teacher,
        report=False,
    )
    recipe = recipe_of(task, teacher, args)
    seconds: dict[str, float] = {}
    scores: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds["ours"], scores["ours"], execution = ours(recipe, folder)
        bf16 = execution.precision == "bf16"
        seconds["plain loop"], scores["plain loop"] = plain_loop(recipe, execution)
        asked = teacher_pass(recipe, execution)
        seconds["plain loop + teacher"] = seconds["plain loop"] + asked
        seconds["trainer, bf16"], scores["trainer, bf16"] = trainer(recipe, folder, bf16=bf16)
        seconds["trainer"], scores["trainer"] = trainer(recipe, folder, bf16=False)
        rows = len(prepare(recipe).train.encoded)
        steps = -(-rows // BATCH) * recipe.passes
        seconds["textbrewer"] = textbrewer(recipe, args.sampled, folder) * steps
        seconds["papers"] = papers(recipe, args.sampled) * steps
    return {
        "rows": rows,
        "execution": execution.model_dump(),
        "seconds": seconds,
        "dev": scores,
        "ratios": {other: seconds["ours"] / seconds[other] for other in BARS},
    }


def show(task: str, found: dict[str, Any], console: Console) -> None:
    """Seconds, score and ratio of each."""
    table = Table(title=f"{task}, {found['rows']} rows")
    for heading in ("what", "seconds", "dev", "ours / it", "bar"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for name, seconds in found["seconds"].items():
        dev = found["dev"].get(name)
        ratio, bar = found["ratios"].get(name), BARS.get(name)
        table.add_row(
            name,
            f"{seconds:.0f}",
            "–" if dev is None else f"{dev:.1f}",
            "" if ratio is None else f"{ratio:.3f}",
            "" if bar is None else f"{bar:.2f}",
        )
    console.print(table)


def main() -> None:
    """One task after the other; the record is written after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of the pretrained 6-layer encoder")
    parser.add_argument("--data", required=True, help="GLUE folder")
    parser.add_argument("--work", type=Path, default=Path("runs/end_to_end"))
    parser.add_argument("--tasks", nargs="+", default=["sst2", "mrpc"])
    parser.add_argument("--rows", type=int, default=None, help="training rows; all by default")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--sampled", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    record = {
        "setting": {
            key: value for key, value in vars(args).items() if key not in ("model", "data", "work")
        },
        "bars": BARS,
        "versions": versions(),
        "hardware": hardware(),
        "tasks": {},
    }
    for task in args.tasks:
        record["tasks"][task] = measure(task, args, args.work)
        show(task, record["tasks"][task], Console(width=110))
        write_whole(RECORD, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
