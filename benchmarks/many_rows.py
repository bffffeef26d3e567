"""Seconds to the first step, and private memory, of a run on millions of unlabeled rows.

    python benchmarks/many_rows.py [--rows 5000000] [--format parquet]

Generates the rows (short texts of about eight words, all different) in a temporary folder, and starts
`limbeck.distill` by method kd on a few labeled rows and these, with a teacher and a student so small that rows are
what takes room. Timed are the reading of the file, and what lies between the rows being read and the end of the first
step. Memory is what is the process's alone (pages of Linux's Private_*), looked at every few milliseconds: the highest
until the first step ends, after it, and that of the imported libraries. Bars: 60 s, 2 GiB. Writes
`benchmarks/records/many_rows.json`.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

import limbeck
from limbeck.data.text_rows import read_unlabelled
from limbeck.records import hardware, versions
from limbeck.run import rows as unlabelled_rows
from limbeck.support.files import write_whole
from limbeck.training import DistillationTrainer

RECORD = Path(__file__).parent / "records" / "many_rows.json"
BARS = {"seconds": 60.0, "gib": 2.0}
WORDS = [f"word{number}" for number in range(400)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
_PIECE = 100_000


def main() -> None:
    """Write the rows and the models, run, print and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--format", choices=["parquet", "csv", "jsonl", "txt"], default="parquet")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        file = folder / f"more.{args.format}"
        write_rows(file, args.rows)
        for name, layers in (("teacher", 2), ("start", 1)):
            save_model(folder / name, layers)
        write_labelled(folder / "own", folder / "teacher")
        measured = measure(folder, file, args.steps)
    measured |= {"rows": args.rows, "format": args.format, "bars": BARS}
    print(json.dumps(measured, indent=1))
    write_whole(RECORD, json.dumps(measured | about(), indent=1) + "\n")


def about() -> dict[str, Any]:
    """What it was measured on."""
    return {"versions": versions(), "hardware": hardware()}


def texts(rows: int, seed: int = 0) -> Iterator[list[str]]:
    """Pieces of texts, no two alike: eight words each, the first three of them the row's number."""
    generator, count = np.random.default_rng(seed), len(WORDS)
    for start in range(0, rows, _PIECE):
        numbers = np.arange(start, min(start + _PIECE, rows))
        digits = [numbers % count, numbers // count % count, numbers // count**2]
        others = generator.integers(0, count, (5, len(numbers)))
        words = np.array(WORDS)[np.stack([*digits, *others])].T
        yield [" ".join(row) for row in words]


def write_rows(path: Path, rows: int) -> None:
    """A column of texts, or a text a line."""
    if path.suffix == ".parquet":
        schema = pa.schema({"text": pa.string()})
        with parquet.ParquetWriter(path, schema) as writer:
            for piece in texts(rows):
                writer.write_table(pa.table({"text": piece}, schema))
        return
    with path.open("w", encoding="utf-8") as file:
        if path.suffix == ".csv":
            file.write("text\n")
        for piece in texts(rows):
            lines = [json.dumps({"text": t}) for t in piece] if path.suffix == ".jsonl" else piece
            file.write("\n".join(lines) + "\n")


def write_labelled(folder: Path, teacher: Path) -> None:
    """1,000 rows to train on and 200 to score, none of them among the others, with the teacher's classes."""
    folder.mkdir()
    model = BertForSequenceClassification.from_pretrained(teacher).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(teacher)
    generator = np.random.default_rng(1)
    for name, rows in (("train", 1000), ("dev", 200)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["text", "label"])
            drawn = [" ".join(words) for words in generator.choice(WORDS, (rows, 9))]
            with torch.no_grad():
                batch = tokenizer(drawn, return_tensors="pt", return_token_type_ids=False)
                classes = model(**batch).logits.argmax(-1).tolist()
            writer.writerows(zip(drawn, (("neg", "pos")[c] for c in classes), strict=True))


def save_model(folder: Path, layers: int) -> None:
    """A BERT of a few thousand weights, with a tokenizer of whole words."""
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    backend = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    backend.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    torch.manual_seed(layers)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=1.0,  # so that its classes depend on the text
        id2label={0: "neg", 1: "pos"},
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(folder)


def measure(folder: Path, file: Path, steps: int) -> dict[str, Any]:
    """One run; where its time and memory went until its first step."""
    times: dict[str, float] = {}
    imported, memory = private_gib(), Memory()
    read, step = read_unlabelled, DistillationTrainer.training_step

    def reading(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        found = read(*args, **kwargs)
        times["read"] = time.perf_counter()
        times["reading"] = times["read"] - began
        return found

    def stepping(self: Any, *args: Any, **kwargs: Any) -> Any:
        loss = step(self, *args, **kwargs)
        if "first" not in times:
            times["first"], times["highest"] = time.perf_counter(), memory.highest
            times["now"] = private_gib()
        return loss

    setattr(unlabelled_rows, read.__name__, reading)
    DistillationTrainer.training_step = stepping
    with memory.watched():
        result = limbeck.distill(
            "kd",
            out=folder / "run",
            report=False,
            task="many",
            data=str(folder / "own"),
            text_columns=["text"],
            label_column="label",
            unlabelled=[str(file)],
            teacher=str(folder / "teacher"),
            max_steps=steps,
            max_length=32,
            **{"student.init": str(folder / "start")},
        )
    return {
        "reading_seconds": round(times["reading"], 1),
        "seconds_to_first_step": round(times["first"] - times["read"], 1),
        "private_gib": {
            "imported": round(imported, 2),
            "highest_to_first_step": round(times["highest"], 2),
            "after_first_step": round(times["now"], 2),
            "highest": round(memory.highest, 2),
        },
        "unlabelled": result.record.examples.unlabelled,
    }


class Memory:
    """The most private memory so far."""

    def __init__(self) -> None:
        self.highest = private_gib()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, it is looked at every few milliseconds."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.05):
                self.highest = max(self.highest, private_gib())

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def private_gib() -> float:
    """Pages that are this process's alone."""
    text = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    return sum(map(int, re.findall(r"Private_(?:Clean|Dirty): +(\d+)", text))) / 2**20


if __name__ == "__main__":
    main()
