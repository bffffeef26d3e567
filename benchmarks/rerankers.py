"""Rerankers on real text: students of a cross-encoder of six layers, by their losses and by which layers they keep.

    python benchmarks/rerankers.py --stsb GLUE/STS-B --encoder all-MiniLM-L6-v2 [--work DIR] [--seeds 1] [--alone 2 3]

Queries are first sentences of STS-B's captions with a score of 4 or more; of each the second sentence is relevant, and
beside it stand the seven second sentences of other captions that are nearest by TF-IDF. Queries of train are sampled
from the train file, those of dev from the dev file. Of three of six layers `upper` is `skip`. One thread;
resumable; `limbeck table benchmarks/records/rerankers.jsonl.gz`.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from limbeck.data.beir import nearest
from study import Cell, Study

RELEVANT, NEGATIVES = 4.0, 7
QUERIES = {"train": 240, "dev": 135}
GENRE = "main-captions"
STUDENTS = ("listwise-kl", "margin-mse", "kd-soft", "finetune")
LAYERS, PICKS = 3, ("skip", "first")


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


def write_data(stsb: Path, folder: Path) -> None:
    """The two files of candidates."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in QUERIES.items():
        rows = candidates(read_pairs(stsb / f"{split}.tsv"), count, seed=0)
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Plan:
    """Runs of one seed: a teacher, and students of some of its layers."""

    work: Path
    encoder: str
    seed: int

    @property
    def base(self) -> dict[str, Any]:
        """What all runs share; epochs and learning rate follow the rows."""
        return {
            "kind": "pair-score", "task": "stsb-rerank", "data": str(self.work / "data"),
            "max_length": 48, "batch_size": 32, "seed": self.seed,
        }  # fmt: skip

    @property
    def teacher(self) -> Cell:
        """The encoder with all its layers, fine-tuned."""
        settings = {**self.base, "student.init": self.encoder}
        return Cell(f"s{self.seed}-teacher", "finetune", settings, label="teacher")

    def students(self, pick: str, methods: Sequence[str] = STUDENTS) -> list[Cell]:
        """A student a method; `finetune` starts from the encoder's layers and has no teacher."""
        shape = {"student.layers": LAYERS, "student.pick": pick}
        own = {"student.init": self.encoder}
        taught = {"student.init": "teacher", "teacher": str(self.work / self.teacher.name)}
        return [
            Cell(
                f"s{self.seed}-{method}-{LAYERS}-{pick}",
                method,
                self.base | shape | (own if method == "finetune" else taught),
                label=f"{method}, {pick}",
            )
            for method in methods
        ]


def main() -> None:
    """One after the other; what has a record is not run again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stsb", type=Path, required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/rerankers"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument(
        "--alone", type=int, nargs="*", default=[2, 3], help="seeds of finetune alone"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    write_data(args.stsb, args.work / "data")
    study = Study("rerankers", args.work)
    for plan in (Plan(args.work, args.encoder, seed) for seed in args.seeds):
        study.run([plan.teacher])
        study.wait_for([plan.teacher])
        for pick in PICKS:
            study.run(plan.students(pick))
    for plan in (Plan(args.work, args.encoder, seed) for seed in args.alone):
        for pick in PICKS:
            study.run(plan.students(pick, ("finetune",)))


if __name__ == "__main__":
    main()
