"""Few labels next to SetFit, and embeddings next to sentence-transformers' own distillation: the same rows.

Of TREC's questions 20 rows of each of six classes keep their labels; 500 are dev rows, 1,000 test rows, and all others
text. SetFit trains MiniLM-6 (20 iterations, as its paper) and distils 3 layers of it by its own trainer. limbeck
fine-tunes the same encoder, and 3 layers learn from that teacher or from SetFit's probabilities of all rows
(`--outputs`), which read as many texts as SetFit's student. Scores are of the test rows; dev rows choose limbeck's best
epoch, and SetFit chooses nothing.

The embedding task is that of sentence-transformers' `model_distillation.py`: layers 2, 4 and 6 of all-MiniLM-L6-v2
learn its embeddings of 10,000 sentences of GLUE by `MSELoss`, two passes; scored on STS-B's test pairs. limbeck's are
`embedding-mse` with the same layers, rate, batch and passes.

    pip install --no-deps setfit evaluate
    python benchmarks/beside_setfit.py run --model MINILM_DIR --data GLUE_DIR --texts TEXTS_DIR [--work DIR] [--seeds 3]
    python benchmarks/beside_setfit.py table

Resumable: what has a record in `benchmarks/records/beside_setfit.json` is not made again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

import limbeck
from embeddings import Inputs
from limbeck.evaluation.compare import paired_t_test
from static import cosines_of, similarities, torch_reader
from study import JsonRecord
from which_method import difference

RECORD = JsonRecord("beside_setfit", indent=1)
LABELED, DEV, TEST = 20, 500, 1000  # the first a class
KEPT = (2, 4, 6)
SETFIT, OWN = "SetFit, 6 layers", "limbeck finetune, 6 layers"
STUDENT, THEIRS = (
    "3 layers, SetFit's distillation of SetFit",
    "3 layers, limbeck, SetFit as teacher",
)
OURS, ALONE = "3 layers, limbeck, limbeck's teacher", "3 layers, limbeck finetune"
QUESTIONS = (SETFIT, OWN, STUDENT, THEIRS, OURS, ALONE)
EMBEDDINGS = ("teacher, 6 layers", "sentence-transformers, 3 layers", "limbeck, 3 layers")
COMMON: dict[str, Any] = {"precision": "auto", "attention": "eager", "floor": False}


@dataclass
class Bench:
    """One seed."""

    seed: int
    args: argparse.Namespace

    @cached_property
    def work(self) -> Path:
        """Where its files lie."""
        place: Path = self.args.work.resolve() / f"s{self.seed}"
        place.mkdir(parents=True, exist_ok=True)
        return place

    @cached_property
    def rows(self) -> dict[str, pd.DataFrame]:
        """Rows with labels, without, of dev and of test; also as files."""
        rows = pd.read_csv(Path(self.args.texts) / "questions.csv").drop_duplicates("text")
        rows = rows.sample(frac=1.0, random_state=0)[["text", "label"]]
        rest = rows[DEV + TEST :].sample(frac=1.0, random_state=self.seed)
        train = rest.groupby("label").head(LABELED)
        found = {
            "dev": rows[:DEV],
            "test": rows[DEV : DEV + TEST],
            "train": train,
            "text": rest.drop(train.index),
        }
        for name, some in found.items():
            some.drop(columns="label" if name == "text" else []).to_csv(
                self.work / f"{name}.csv", index=False
            )
        return found

    # ---- questions ----

    @cached_property
    def setfit(self) -> Any:
        """SetFit's model of the labeled rows."""
        from setfit import SetFitModel, Trainer, TrainingArguments

        train = self.rows["train"]
        made = SetFitModel.from_pretrained(self.args.model, labels=sorted(set(train["label"])))
        wanted = TrainingArguments(
            batch_size=16, num_iterations=20, seed=self.seed, report_to="none", **self._places
        )
        given = Dataset.from_pandas(train, preserve_index=False)
        Trainer(model=made, args=wanted, train_dataset=given).train()
        return made

    @cached_property
    def _places(self) -> dict[str, Any]:
        return {"output_dir": str(self.work / "checkpoints"), "save_strategy": "no"}

    def setfit_student(self) -> float:
        """SetFit's trainer: 3 layers of the encoder learn SetFit's similarities of texts without labels."""
        from setfit import DistillationTrainer, SetFitModel, TrainingArguments

        body = SentenceTransformer(self.args.model, device="cpu")
        keep_layers(body)
        folder = self.work / "body"
        body.save(str(folder))
        student = SetFitModel.from_pretrained(str(folder), labels=self.setfit.labels)
        read = json.loads((self.taught(THEIRS) / "record.json").read_text())["cost"]
        wanted = TrainingArguments(
            batch_size=16,
            max_steps=round(read["student_examples"] / 32),  # pairs
            seed=self.seed,
            report_to="none",
            **self._places,
        )
        text = Dataset.from_dict(
            {"text": [*self.rows["train"]["text"], *self.rows["text"]["text"]]}
        )
        DistillationTrainer(
            teacher_model=self.setfit, student_model=student, args=wanted, train_dataset=text
        ).train()
        return self.right(student)

    def right(self, model: Any) -> float:
        """Accuracy of one of SetFit's models on the test rows, in percent."""
        found = model.predict(list(self.rows["test"]["text"]))
        return 100 * float(np.mean(np.asarray(found) == self.rows["test"]["label"].to_numpy()))

    @cached_property
    def probabilities(self) -> Path:
        """SetFit's probabilities of all rows that students read, as a file for `--outputs`."""
        place = self.work / "setfit.csv"
        texts = pd.concat([self.rows[name]["text"] for name in ("train", "text", "dev")])
        found = self.setfit.predict_proba(list(texts)).numpy()
        columns = {
            f"probabilities.{name}": found[:, at] for at, name in enumerate(self.setfit.labels)
        }
        pd.DataFrame({"text": list(texts), **columns}).to_csv(place, index=False)
        return place

    def taught(self, name: str) -> Path:
        """A finished run of limbeck's."""
        assert len(self.rows) == 4  # written
        files = {split: str(self.work / f"{split}.csv") for split in ("dev", "test")}
        own: dict[str, Any] = {
            **COMMON, **files, "task": "own-questions", "data": str(self.work / "train.csv"),
            "text_columns": ["text"], "label_column": "label", "seed": self.seed,
        }  # fmt: skip
        text = {"unlabelled": [str(self.work / "text.csv")], "unlabelled_duplicates": "drop"}
        three = {"student.init": self.args.model, "student.layers": 3, "student.pick": "skip"}
        method, more = {
            OWN: ("finetune", {"student.init": self.args.model}),
            ALONE: ("finetune", three),
            OURS: ("kd-soft", {"student.layers": 3, "student.pick": "skip", **text}),
            THEIRS: ("kd-soft", {**three, **text}),
        }[name]
        if name == OURS:
            more = {**more, "teacher": str(self.taught(OWN))}
        if name == THEIRS:
            more = {**more, "outputs": [str(self.probabilities)]}
        place = self.work / name.replace(" ", "-").replace(",", "")
        return limbeck.distill(method, out=place, report=False, **own, **more).path

    def question(self, name: str) -> dict[str, float]:
        """A model's accuracy on the test rows."""
        if name == SETFIT:
            return {"score": self.right(self.setfit)}
        if name == STUDENT:
            return {"score": self.setfit_student()}
        record = json.loads((self.taught(name) / "record.json").read_text(encoding="utf-8"))
        return {"score": record["scores"]["test"]["primary"]}

    # ---- embeddings ----

    def embedding(self, name: str) -> dict[str, float]:
        """Spearman's correlation on STS-B's test pairs."""
        inputs = Inputs(self.args.model, Path(self.args.data), self.work / "stsb", 10_000)
        inputs.make()
        if name.startswith("sentence"):
            read = self._by_theirs(inputs)
        else:
            folder = inputs.teacher
            if name.startswith("limbeck"):
                own: dict[str, Any] = {
                    **COMMON, "kind": "embedding", "teacher": str(folder), "data": str(inputs.train),
                    "dev": str(inputs.dev), "max_length": 64, "epochs": 2, "batch_size": 32, "lr": 1e-4,
                    "seed": self.seed, "student.layers": 3, "student.pick": "skip",
                }  # fmt: skip
                place = self.work / "embedder"
                made = limbeck.distill("embedding-mse", out=place, report=False, **own)
                folder = made.path / "student"
            read = torch_reader(folder)
        place = Path(self.args.data) / "STS-B" / "test.tsv"
        cosines = cosines_of(read, pd.read_csv(place, sep="\t", quoting=3))
        return {"score": 100 * float(spearmanr(cosines, similarities()).statistic)}

    def _by_theirs(self, inputs: Inputs) -> Callable[[list[str]], Any]:
        """Its script's loss, rate and layers."""
        from sentence_transformers import (
            SentenceTransformerTrainer,
            SentenceTransformerTrainingArguments,
        )
        from sentence_transformers.losses import MSELoss

        teacher = SentenceTransformer(str(inputs.teacher), device="cpu")
        student = SentenceTransformer(str(inputs.teacher), device="cpu")
        keep_layers(student)
        texts = inputs.train.read_text(encoding="utf-8").splitlines()
        labels = teacher.encode(texts, convert_to_numpy=True).tolist()
        wanted = SentenceTransformerTrainingArguments(
            num_train_epochs=2, per_device_train_batch_size=32, learning_rate=1e-4, warmup_ratio=0.1,
            bf16=True, use_cpu=True, seed=self.seed, report_to="none", **self._places,
        )  # fmt: skip
        SentenceTransformerTrainer(
            model=student, args=wanted, loss=MSELoss(student),
            train_dataset=Dataset.from_dict({"sentence": texts, "label": labels}),
        ).train()  # fmt: skip
        return lambda some: student.encode(some, convert_to_numpy=True)


def keep_layers(model: SentenceTransformer) -> None:
    """Leave the other layers out, as sentence-transformers' script does."""
    encoder: Any = model[0].auto_model
    encoder.encoder.layer = torch.nn.ModuleList(encoder.encoder.layer[at - 1] for at in KEPT)
    encoder.config.num_hidden_layers = len(KEPT)


def run(args: argparse.Namespace) -> None:
    """What has no record, seed by seed."""
    torch.set_num_threads(1)
    for seed in range(1, args.seeds + 1):
        bench = Bench(seed, args)
        for part, names in (("questions", QUESTIONS), ("embeddings", EMBEDDINGS)):
            for name in names:
                if RECORD.has(part, name, seed):
                    continue
                found = bench.question(name) if part == "questions" else bench.embedding(name)
                RECORD.keep(found, part, name, seed)
                print(part, seed, name, found, flush=True)


def table() -> None:
    """A row a model: mean and deviation, and the difference from a peer."""
    peers = {THEIRS: STUDENT, OURS: STUDENT, OWN: SETFIT, EMBEDDINGS[2]: EMBEDDINGS[1]}
    for part, models in RECORD.read().items():
        print(f"| {part} | seeds | score | less | points (95 %) |\n|:---|---:|---:|:---|---:|")
        for name, seeds in models.items():
            scores = [one["score"] for one in seeds.values()]
            spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
            other = models.get(peers.get(name, ""), {})
            both = sorted(seeds.keys() & other.keys())
            found = paired_t_test(*([of[seed]["score"] for seed in both] for of in (seeds, other)))
            said = [peers[name], difference(found)] if found else ["", ""]
            print(
                f"| {name} | {len(scores)} | {statistics.mean(scores):.1f}{spread} | {' | '.join(said)} |"
            )
        print()


def main() -> None:
    """Run what has no record yet, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="measure what has no record yet")
    runs.add_argument("--model", required=True, help="folder of all-MiniLM-L6-v2")
    runs.add_argument("--data", required=True, help="GLUE folder")
    runs.add_argument("--texts", required=True, help="folder of get-texts")
    runs.add_argument("--work", type=Path, default=Path("runs/beside_setfit"))
    runs.add_argument("--seeds", type=int, default=3)
    commands.add_parser("table", help="print the record's tables")
    args = parser.parse_args()
    if args.command == "table":
        table()
    else:
        run(args)


if __name__ == "__main__":
    main()
