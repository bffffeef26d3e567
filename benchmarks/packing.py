"""Padding in batches of real text, and the CPU time of a training step with and without packing.

News (Reuters-52) and newsgroup posts (20 Newsgroups) in equal numbers, tokenized by SmolLM2 and truncated. Students and
teachers have SmolLM2-135M's width and vocabulary, fewer layers and random weights, as time does not depend on them.
Each step is one of `DistillationTrainer` with method kd.

    python benchmarks/packing.py run --model SMOLLM2_DIR --texts TEXTS_DIR [--steps 6]
    python benchmarks/packing.py table

`run` writes `benchmarks/records/packing.json`, `table` prints it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from transformers import AutoTokenizer, set_seed

from limbeck.data import Collator
from limbeck.data.samplers import length_grouped
from limbeck.records import hardware, versions
from limbeck.support.files import write_whole
from limbeck.tasks import CAUSAL_LM
from limbeck.training import DistillationConfig, DistillationTrainer
from overhead import StepTimes
from step_cost import decoder

RECORD = Path(__file__).parent / "records" / "packing.json"
ROWS, BATCH, LENGTHS, LAYERS = 1024, 8, (64, 256), (3, 6)


def encoded(args: argparse.Namespace, length: int) -> Dataset:
    """The texts in a random order, the same for every length."""
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    texts = []
    for source in ("reuters52", "newsgroups"):
        found = pd.read_csv(Path(args.texts) / source / "train.csv")["text"].dropna()
        texts += found.astype(str).sample(ROWS // 2, random_state=0).tolist()
    order = np.random.default_rng(0).permutation(ROWS)
    cut = tokenizer([texts[at] for at in order], truncation=True, max_length=length)
    ids = [one or [0] for one in cut["input_ids"]]
    return Dataset.from_dict(
        {"input_ids": ids, "attention_mask": [[1] * len(one) for one in ids], "labels": ids}
    )


def orders(rows: Dataset) -> dict[str, np.ndarray]:
    """The order of an epoch, random and as limbeck groups it by length."""
    lengths = np.array([len(one) for one in rows["input_ids"]])
    grouped = length_grouped(lengths, BATCH, torch.Generator().manual_seed(0))
    return {"random order": np.arange(ROWS), "grouped by length": grouped}


def padding(rows: Dataset, order: np.ndarray) -> float:
    """The share of padding among all tokens of all batches, in percent."""
    lengths = np.array([len(one) for one in rows["input_ids"]])[order].reshape(-1, BATCH)
    return float(100 * (1 - lengths.sum() / (lengths.max(1) * BATCH).sum()))


def seconds(rows: Dataset, packed: bool, args: argparse.Namespace) -> list[float]:
    """CPU seconds of each step on these rows in their order, without the first step, which warms up."""
    set_seed(0)
    student, teacher = decoder(LAYERS[0], "sdpa"), decoder(LAYERS[1], "sdpa")
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    with tempfile.TemporaryDirectory() as folder:
        settings = DistillationConfig(
            output_dir=folder, method="kd", packing=packed, max_steps=args.steps + 1, use_cpu=True,
            per_device_train_batch_size=BATCH, save_strategy="no", report_to="none", disable_tqdm=True,
            group_by_length=False, skip_unused_embeddings=False, train_sampling_strategy="sequential",
        )  # fmt: skip
        times = StepTimes(time.process_time)
        DistillationTrainer(
            student, teacher, settings, train_dataset=rows, callbacks=[times],
            data_collator=Collator(tokenizer, kind=CAUSAL_LM),
        ).train()  # fmt: skip
    return times.seconds[1:]


def run(args: argparse.Namespace) -> None:
    """Measure every length and order."""
    found: dict[str, Any] = {}
    for length in LENGTHS:
        rows = encoded(args, length)
        for name, order in orders(rows).items():
            # Batches of all lengths: every so many of the epoch's.
            batches = order.reshape(-1, BATCH)[:: ROWS // BATCH // args.steps][: args.steps]
            few = rows.select(np.concatenate([batches[:1], batches]).flatten().tolist())
            padded, packed = (np.array(seconds(few, one, args)) for one in (False, True))
            cell = {
                "padding": round(padding(rows, order), 1),
                "measured_padding": round(100 * (1 - _real(rows, batches)), 1),
                "padded_seconds": round(float(padded.mean()), 2),
                "packed_seconds": round(float(packed.mean()), 2),
                "ratio": round(float(packed.sum() / padded.sum()), 3),
            }
            found.setdefault(str(length), {})[name] = cell
            print(length, name, cell, flush=True)
    record = {
        "rows": ROWS, "batch": BATCH, "layers": LAYERS, "steps": args.steps, "versions": versions(),
        "hardware": hardware(), "lengths": found,
    }  # fmt: skip
    write_whole(RECORD, json.dumps(record, indent=1) + "\n")


def _real(rows: Dataset, batches: np.ndarray) -> float:
    lengths = np.array([len(one) for one in rows["input_ids"]])[batches]
    return float(lengths.sum() / (lengths.max(1) * BATCH).sum())


def table() -> None:
    """Print a row for each length and order."""
    print(
        "| truncated to | batches | padding | CPU seconds of a step, padded | packed | packed / padded |"
    )
    print("|---:|:---|---:|---:|---:|---:|")
    for length, orders_of in json.loads(RECORD.read_text())["lengths"].items():
        for name, cell in orders_of.items():
            print(
                f"| {length} tokens | {name} | {cell['padding']:.0f} % | {cell['padded_seconds']:.1f} | "
                f"{cell['packed_seconds']:.1f} | {cell['ratio']:.2f} |"
            )


def main() -> None:
    """Run or print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("run", "table"))
    parser.add_argument("--model")
    parser.add_argument("--texts")
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    run(args) if args.command == "run" else table()


if __name__ == "__main__":
    main()
