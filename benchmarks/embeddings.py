"""Sentence embedders at half the size, and at a third: what each method keeps of the teacher's, on real text.

The teacher is all-MiniLM-L6-v2 (a plain encoder's folder is read with mean pooling and division by the length, as that
model's own are); its students have the upper layer of each group of its layers. They learn from sentences of GLUE's
training files without labels (CoLA, MRPC, RTE, SST-2, STS-B; no sentence of STS-B's dev or test file is among them) and
are scored on STS-B's dev pairs.

    python benchmarks/embeddings.py --model MINILM_DIR --data GLUE_DIR [--work DIR] [--layers 3 2] [--seeds 5]
        [--sentences 20000] [--passes 2] [--methods "embedding MSE" …]

Resumable: first all methods at the first depth with seed 1, then the next depth, then the next seed. Records keep each
pair's cosine and similarity. `python benchmarks/embeddings_table.py` prints the table with its tests over pairs.
"""

from __future__ import annotations

import argparse
import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from transformers import AutoTokenizer

from limbeck.embedding import SENTENCE_EMBEDDERS
from limbeck.lab.study.shared_runs import portable
from limbeck.recipe import Recipe
from limbeck.records import write_collection
from limbeck.records.record import read_raw
from limbeck.run import distill
from limbeck.teachers.teacher import Teacher
from study import Cell, Study

COSINES = "cosines"
"""Under which a record keeps the cosine of each dev pair, in the file's order."""
SIMILARITIES = "similarities"
"""Under which it keeps what people say of the same pairs."""
BASELINE = "embedding MSE"
COMMON: dict[str, Any] = {
    "kind": "embedding",
    "student.pick": "upper",
    "batch_size": 32,
    "lr": 3e-4,
    "max_length": 64,
    "precision": "auto",
    "attention": "eager",
    "keep_texts": False,
}
# Sentences that the students of a study are trained on are the same for all seeds.
_DRAW = 0
# As the mean of all tokens is what these models embed a text by.
_MEAN = {"pool": "mean"}


@dataclass(frozen=True)
class Method:
    """What a student learns: a method with settings of its own.

    Attributes:
        stages: how many there are, which share the passes.
        cost: of a step, next to that of the embeddings alone; cheaper ones run first.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    stages: int = 1
    cost: float = 1.0


METHODS = {
    BASELINE: Method("embedding-mse"),
    "MSE + similarities": Method(
        "embedding-similarity", {"objectives.similarity.weight": 10}, cost=1.1
    ),
    "MSE + lists": Method("embedding-lists", cost=1.1),
    "similarities alone": Method("embedding-similarity", {"objectives.target": None}, cost=1.2),
    "RAIL-KD, layer by layer": Method("rail-kd-l", cost=2.0),
    "ALP-KD": Method(
        "alp-kd", {f"objectives.attention.{k}": v for k, v in _MEAN.items()}, cost=2.1
    ),
    "PKD-skip": Method(
        "pkd-skip", {f"objectives.patience.{k}": v for k, v in _MEAN.items()}, cost=2.2
    ),
    "internal-KD, cosines": Method(
        "internal-kd-soft-cos", {f"objectives.cosine.{k}": v for k, v in _MEAN.items()}, cost=2.3
    ),
    "CKD": Method("ckd-po", {f"objectives.combination.{k}": v for k, v in _MEAN.items()}, cost=2.4),
    "MiniLMv2": Method("minilmv2", stages=2, cost=2.5),
    "RAIL-KD, concatenated": Method("rail-kd-c", cost=2.6),
    "CR-ILD": Method("cr-ild", stages=2, cost=3.0),
    "BERT-EMD": Method("bert-emd", cost=3.1),
}


@dataclass(frozen=True)
class Inputs:
    """The teacher's folder and the files that all students read, made once.

    Attributes:
        model: the pretrained embedder.
        data: GLUE's folder.
        work: where they are put.
        sentences: how many to train on.
    """

    model: str
    data: Path
    work: Path
    sentences: int

    @property
    def teacher(self) -> Path:
        """The teacher as a folder of sentence-transformers."""
        return self.work / "teacher"

    @property
    def train(self) -> Path:
        """A sentence a line."""
        return self.work / f"sentences-{self.sentences}.txt"

    @property
    def dev(self) -> Path:
        """Scored pairs."""
        return self.data / "STS-B" / "dev.tsv"

    def make(self) -> None:
        """Write what is not there."""
        self.work.mkdir(parents=True, exist_ok=True)
        if not (self.teacher / "modules.json").exists():
            AutoTokenizer.from_pretrained(self.model).save_pretrained(self.teacher)
            SENTENCE_EMBEDDERS.from_pretrained(self.model).save_pretrained(self.teacher)
        if self.train.exists():
            return
        drawn = drawn_sentences(self.data, self.sentences)
        self.train.write_text("".join(f"{text}\n" for text in drawn), encoding="utf-8")


def drawn_sentences(data: Path, count: int) -> list[str]:
    """The sentences that students learn from."""
    found = glue_sentences(data)
    if len(found) < count:
        raise SystemExit(f"{data} holds {len(found)} sentences: lower --sentences")
    chosen = np.sort(np.random.default_rng(_DRAW).permutation(len(found))[:count])
    return [found[row] for row in chosen]


def glue_sentences(data: Path) -> list[str]:
    """All distinct sentences of the training files, but for those of STS-B's dev and test pairs."""
    columns = {"CoLA": (3,), "MRPC": (3, 4), "RTE": (1, 2), "SST-2": (0,), "STS-B": (7, 8)}
    scored = {
        text
        for split in ("dev", "test")
        for text in _texts(data / "STS-B" / f"{split}.tsv", (7, 8))
    }
    found: dict[str, None] = {}
    for task, places in columns.items():
        rows = _texts(data / task / "train.tsv", places, header=task != "CoLA")
        found |= dict.fromkeys(rows)
    return [text for text in found if text not in scored]


def _texts(path: Path, places: tuple[int, ...], *, header: bool = True) -> list[str]:
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))[
            1 if header else 0 :
        ]
    found = [row[place].strip() for row in rows for place in places if len(row) > place]
    return [text for text in found if text and len(text.splitlines()) == 1]


class Embeddings(Study):
    """A study whose records keep the students' cosines beside their scores."""

    def _run_cell(self, cell: Cell, teacher: Teacher | None) -> None:
        run = distill(
            Recipe.load(cell.method, **cell.settings), self.work / cell.name, report=False,
            live_teacher=teacher,
        )  # fmt: skip
        record = portable(run.path)
        assert record is not None
        kept = json.loads((run.path / "predictions.json").read_text(encoding="utf-8"))["dev"]
        record[COSINES] = [round(value, 5) for value in kept["prediction"]]
        record[SIMILARITIES] = [round(value, 3) for value in kept["label"]]
        record["method"] = cell.label or record["method"]
        with FileLock(self.work / "records.lock"):
            write_collection(self.records, read_raw(self.records) | {cell.name: record})
        print(f"{cell.name}: {record['scores']['dev']['primary']:.2f}", flush=True)


def cells(inputs: Inputs, names: list[str], layers: int, seed: int, passes: int) -> list[Cell]:
    """A student of each method."""
    found = []
    for name in names:
        method = METHODS[name]
        shared: dict[str, Any] = {"epochs": passes}
        if method.stages == 2:
            shared = {"first_stage.epochs": passes / 2, "epochs": passes / 2}
            shared |= {
                "first_stage.lr": COMMON["lr"],
                "first_stage.batch_size": COMMON["batch_size"],
            }
        settings = {
            **COMMON, **method.settings, **shared, "teacher": str(inputs.teacher), "data": str(inputs.train),
            "dev": str(inputs.dev), "student.layers": layers, "seed": seed,
        }  # fmt: skip
        slug = "-".join(name.replace(",", "").replace("+ ", "").lower().split())
        place = f"{layers}l-{inputs.sentences}x{passes}-{slug}-s{seed}"
        found.append(Cell(place, method.name, settings, method.cost, label=name))
    return found


def main() -> None:
    """One seed of every depth after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--data", required=True, type=Path, help="GLUE folder")
    parser.add_argument("--work", type=Path, default=Path("runs/embeddings"))
    parser.add_argument("--layers", type=int, nargs="+", default=[3, 2])
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    inputs = Inputs(args.model, args.data, args.work.resolve(), args.sentences)
    inputs.make()
    study = Embeddings("embeddings", inputs.work)
    for seed in range(1, args.seeds + 1):
        for layers in args.layers:
            study.run(cells(inputs, args.methods, layers, seed, args.passes), inputs.teacher)


if __name__ == "__main__":
    main()
