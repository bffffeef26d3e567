"""Rerankers on real text: a cross-encoder of six layers and students of three, by losses over lists and by others.

    python benchmarks/rerankers.py --stsb GLUE/STS-B --encoder all-MiniLM-L6-v2 [--work DIR] [--seeds 1]

Queries are first sentences of STS-B's captions with a score of 4 or more; of each the second sentence is relevant, and
beside it stand the seven second sentences of other captions that are nearest by TF-IDF. Queries of train are sampled
from the train file, those of dev from the dev file. One thread; resumable; `limbeck table
benchmarks/records/rerankers.jsonl.gz`.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from limbeck.data.beir import nearest
from study import Cell, Study

RELEVANT, NEGATIVES = 4.0, 7
QUERIES = {"train": 240, "dev": 100}
GENRE = "main-captions"
STUDENTS = ("kd-soft", "listwise-kl", "margin-mse", "finetune", "lambda-loss", "kd", "rail-kd-l")


def read_pairs(path: Path) -> list[tuple[str, str, float]]:
    """First and second sentences with their scores."""
    with path.open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        kept = [row for row in rows if row["genre"] == GENRE]
    return [(row["sentence1"], row["sentence2"], float(row["score"])) for row in kept]


def candidates(pairs: list[tuple[str, str, float]], count: int, seed: int) -> list[dict[str, Any]]:
    """Queries with one relevant passage and its nearest others, in the layout of candidate files."""
    corpus = sorted({second for _, second, _ in pairs})
    place = {text: number for number, text in enumerate(corpus)}
    good: dict[str, set[str]] = {}
    known: dict[str, set[str]] = {}
    for first, second, score in pairs:
        known.setdefault(first, set()).add(second)
        if score >= RELEVANT and first != second:
            good.setdefault(first, set()).add(second)
    chosen = np.random.default_rng(seed).permutation(sorted(good))[:count].tolist()
    near = nearest(chosen, corpus, NEGATIVES + 20)
    rows = []
    for query, places in zip(chosen, near, strict=True):
        # What is judged with this query, or is the query itself, is no negative.
        own = {place[text] for text in known[query]} | {place.get(query, -1)}
        others = [corpus[one] for one in places if one not in own][:NEGATIVES]
        right = sorted(good[query])[:1]
        labels = [1.0] + [0.0] * len(others)
        rows.append({"query": query, "passages": [*right, *others], "labels": labels})
    return rows


def write_data(stsb: Path, folder: Path) -> Path:
    """The two files of candidates."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in QUERIES.items():
        rows = candidates(read_pairs(stsb / f"{split}.tsv"), count, seed=0)
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    return folder


def cells(work: Path, data: Path, encoder: str, seed: int) -> tuple[list[Cell], list[Cell]]:
    """The teacher, and students of three of its layers; without a teacher of three of the encoder's."""
    base = {
        "kind": "pair-score", "task": "stsb-rerank", "data": str(data), "max_length": 48,
        "batch_size": 32, "seed": seed, "epochs": 2,
    }  # fmt: skip
    teacher = Cell(
        f"s{seed}-teacher",
        "finetune",
        {**base, "lr": 1e-4, "student.init": encoder},
        label="teacher",
    )
    place = str(work / teacher.name)
    students = []
    for method in STUDENTS:
        start = (
            {"student.init": encoder}
            if method == "finetune"
            else {"teacher": place, "student.init": "teacher"}
        )
        settings = {**base, "lr": 2e-4, "student.layers": 3, **start}
        students.append(Cell(f"s{seed}-{method}", method, settings, label=f"{method}, 3 layers"))
    return [teacher], students


def main() -> None:
    """One after the other; what has a record is not run again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stsb", type=Path, required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/rerankers"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = write_data(args.stsb, args.work / "data")
    study = Study("rerankers", args.work)
    for seed in args.seeds:
        for group in cells(args.work, data, args.encoder, seed):
            study.run(group)
            study.wait_for(group)


if __name__ == "__main__":
    main()
