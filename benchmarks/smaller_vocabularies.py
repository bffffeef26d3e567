"""What smaller vocabularies of MiniLM from SST-2's training text cost, in its own and in other texts.

    python benchmarks/smaller_vocabularies.py --model MINILM_DIR --data GLUE_DIR --texts TEXTS_DIR

Prints for each size the tokens, the megabytes of embeddings, for each text the share of its tokens that stay whole and
how much its mean length in tokens grows, and the share of SST-2's dev rows whose tokens all stay. Of some of these rows
the first token's state before and after is compared: the largest difference is printed last.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer

from limbeck.students.vocabulary import Shrunk, shrink_vocabulary

SIZES = ("corpus", "99%", "95%", "11MB", "8000", "4000")


def column(path: Path, *names: str) -> list[str]:
    """Texts of a table's columns."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        tabs = path.suffix == ".tsv"
        rows = (
            csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
            if tabs
            else csv.DictReader(stream)
        )
        return [row[name] for row in rows for name in names]


def texts_of(data: Path, texts: Path) -> dict[str, list[str]]:
    """The texts that are looked at, SST-2's training text first."""
    return {
        "SST-2 train": column(data / "SST-2" / "train.tsv", "sentence"),
        "SST-2 dev": column(data / "SST-2" / "dev.tsv", "sentence"),
        "MRPC dev": column(data / "MRPC" / "dev.tsv", "#1 String", "#2 String"),
        "tweets": column(texts / "sentiment" / "tweets.csv", "text"),
        "questions": column(texts / "questions.csv", "text"),
    }


def as_before(found: Shrunk, texts: list[str]) -> list[str]:
    """The texts whose tokens all stayed."""
    kept = set(found.kept)
    coded = found.former(texts, verbose=False)["input_ids"]
    return [text for text, ids in zip(texts, coded, strict=True) if kept.issuperset(ids)]


@torch.inference_mode()
def difference(model: Any, found: Shrunk, texts: list[str]) -> float:
    """The largest difference between the first token's states of two models."""
    states = []
    for one, tokenizer in ((model, found.former), (found.model, found.tokenizer)):
        batch = tokenizer(texts, padding=True, return_tensors="pt")
        states.append(one(**batch).last_hidden_state[:, 0])
    return float((states[0] - states[1]).abs().max())


def main() -> None:
    """Shrink, read and print."""
    parser = argparse.ArgumentParser()
    for name in ("model", "data", "texts"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args()
    model = AutoModel.from_pretrained(given.model).eval()
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    texts = texts_of(given.data, given.texts)
    train, dev = texts["SST-2 train"], texts["SST-2 dev"]
    print(f"| size | tokens | MB | {' | '.join(texts)} | as before |")
    print("|---" * (len(texts) + 4) + "|")
    largest = 0.0
    for size in SIZES:
        found = shrink_vocabulary(model, tokenizer, [train], size)
        cells = [size, f"{len(found.kept):,}", f"{found.megabytes[1]:.1f}"]
        for one in (found.report([some]) for some in texts.values()):
            cells.append(f"{100 * one.coverage:.1f} %, +{100 * (one.after / one.before - 1):.0f} %")
        same = as_before(found, dev)
        print("| " + " | ".join([*cells, f"{100 * len(same) / len(dev):.0f} %"]) + " |")
        largest = max(largest, difference(model, found, same[:100]))
    print(f"largest difference of a state where all tokens stayed: {largest:.1e}")


if __name__ == "__main__":
    main()
