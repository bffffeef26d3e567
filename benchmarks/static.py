"""Static students beside what else answers in microseconds, on real text: their scores, speed and size.

Of SST-2 1,000 training rows keep their labels, and all others lose them. MiniLM-6 is fine-tuned on the labeled rows.
The teacher's soft labels of all rows teach a static student. Beside it: TF-IDF and logistic regression on the
teacher's classes of the same rows, and on the labels alone; a 3-layer student on the labels alone. Of embeddings,
all-MiniLM-L6-v2's of 20,000 sentences of GLUE teach a static student. Beside it: model2vec's own `distill` of the same
teacher. Both are scored on STS-B's dev pairs.

    python benchmarks/static.py run --model MINILM_DIR --data GLUE_DIR [--work DIR] [--seeds 5]
    python benchmarks/static.py table --markdown

Resumable: what has a record in `benchmarks/records/static.json` is not made again. Records keep the prediction of each
dev row. model2vec's `distill` needs its extra of that name; without it its row is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import limbeck
from embeddings import Inputs
from few_labels import Split
from limbeck.recipe import Recipe
from limbeck.students import load_model, read_tokenizer
from limbeck.support.files import write_whole

RECORD = Path(__file__).parent / "records" / "static.json"
TASKS = {
    "SST-2, 1,000 labels": (
        "teacher, 6 layers",
        "3 layers, labels alone",
        "static, teacher's soft labels",
        "static without word pairs",
        "TF-IDF, teacher's classes",
        "TF-IDF, labels alone",
    ),
    "STS-B": ("teacher, 6 layers", "static", "model2vec distill"),
}
ROWS: dict[str, Any] = {
    "precision": "auto",
    "attention": "eager",
    "max_length": 64,
    "floor": False,
}
STATIC = {"student.static": True, "batch_size": 128}
Reader = Callable[[list[str]], Any]


def measured(
    score: float, predictions: list[float], read: Reader, texts: list[str], mb: float
) -> dict[str, Any]:
    """What is kept of a model: its score, its predictions and what a text costs on one core."""
    found = {
        "score": round(score, 2),
        "microseconds": seconds_of(read, texts),
        "mb": mb,
    }
    return found | {"predictions": [round(float(one), 4) for one in predictions]}


def seconds_of(read: Reader, texts: list[str]) -> float:
    """Microseconds of CPU time a text, tokenization too: the median of three passes."""
    passes = []
    for _ in range(3):
        began = time.process_time()
        read(texts)
        passes.append(1e6 * (time.process_time() - began) / len(texts))
    return round(statistics.median(passes), 1)


def torch_reader(folder: Path) -> Reader:
    """The outputs of a model in torch, of texts of similar length in batches of 32."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kind = "embedding" if (folder / "modules.json").exists() or config.get("embeds") else "sentence"
    model = load_model(folder, auto=limbeck.tasks.get_task_type(kind).auto)
    tokenizer = read_tokenizer(folder)

    def read(texts: list[str]) -> np.ndarray:
        order = np.argsort([len(text) for text in texts], kind="stable")
        found = []
        with torch.inference_mode():
            for start in range(0, len(texts), 32):
                some = [texts[place] for place in order[start : start + 32]]
                coded = tokenizer(
                    some,
                    padding=True,
                    truncation=True,
                    max_length=128,
                    return_tensors="pt",
                )
                found.append(model(**coded).logits.numpy())
        outputs = np.concatenate(found)
        return outputs[np.argsort(order)]

    return read


def megabytes(folder: Path) -> float:
    """Of weights."""
    return round(sum(path.stat().st_size for path in folder.rglob("*.safetensors")) / 1e6, 1)


class Bench:
    """One seed: where its runs lie, and the record that all share."""

    def __init__(self, args: argparse.Namespace, seed: int) -> None:
        self.seed, self.work, self.model = seed, args.work.resolve(), args.model
        self.rows = args.unlabelled_rows
        self.split = Split("sst2", 1000, seed, self.work, args.data)
        self.inputs = Inputs(args.model, Path(args.data), self.work / "stsb", 20_000)

    def run(self) -> None:
        """Measure what is not in the record, one model after the other."""
        for task, names in TASKS.items():
            make = self.classifiers if task.startswith("SST") else self.embedders
            for name, found in make(task, names):
                record = read()
                record.setdefault(task, {}).setdefault(name, {})[str(self.seed)] = found
                print(
                    f"{task}, {name}: {found['score']}, {found['microseconds']}",
                    flush=True,
                )
                write_whole(RECORD, json.dumps(record, indent=1) + "\n")

    def _missing(self, task: str, names: tuple[str, ...]) -> list[str]:
        known = read().get(task, {})
        return [name for name in names if str(self.seed) not in known.get(name, {})]

    def _distilled(self, method: str, name: str, **settings: Any) -> Path:
        recipe = Recipe.load(method, seed=self.seed, **settings)
        out = self.work / f"{name}-s{self.seed}"
        return limbeck.distill(recipe, out=out, report=False).path / "student"

    # ---- classes ----

    def classifiers(
        self, task: str, names: tuple[str, ...]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """SST-2's models that have no record."""
        if not (missing := self._missing(task, names)):
            return
        self.split.make()
        rows = {**ROWS, "task": "sst2", "data": str(self.split.folder)}
        small = {"student.init": self.model, "epochs": 6, "batch_size": 16, "lr": 5e-5}
        teacher = self._distilled("finetune", "teacher", **rows, **small)
        dev = pd.read_parquet(self.split.folder / "dev.parquet")
        self.texts, self.labels = list(dev["sentence"]), dev["label"].to_numpy()
        rest = self.split.unlabelled(self.rows)
        store = self.work / f"labels-s{self.seed}"
        if not store.with_suffix(".parquet").exists():
            limbeck.label(
                teacher.parent, self.split.folder / "train.parquet", unlabelled=str(rest), text_columns=["sentence"],
                out=str(store), to=str(store.with_suffix(".parquet")), max_length=64, outputs=["logits"],
            )  # fmt: skip
        taught = {
            **rows, **STATIC, "teacher": str(teacher.parent), "outputs": [str(store)], "unlabelled": [str(rest)],
            "unlabelled_duplicates": "drop",
        }  # fmt: skip
        for name in missing:
            if name.startswith("TF-IDF"):
                yield name, self._words(name, store.with_suffix(".parquet"))
                continue
            if name.startswith("3 layers"):
                settings = {
                    **rows,
                    **small,
                    "lr": 1e-4,
                    "epochs": 10,
                    "student.layers": 3,
                    "student.pick": "first",
                }
                folder = self._distilled("finetune", "three-layers", **settings)
            elif name.startswith("static"):
                own = {"student.pairs": 0} if "without" in name else {}
                folder = self._distilled(
                    "kd-soft", name.split(",")[0].replace(" ", "-"), **taught, **own
                )
            else:
                folder = teacher
            reader = torch_reader(folder)
            given = reader(self.texts).argmax(1)
            yield name, self._kept(given, reader, megabytes(folder))

    def _kept(self, given: np.ndarray, reader: Reader, size: float) -> dict[str, Any]:
        score = 100 * float((given == self.labels).mean())
        return measured(score, given.tolist(), reader, self.texts, size)

    def _words(self, name: str, said: Path) -> dict[str, Any]:
        if "alone" in name:
            train = pd.read_parquet(self.split.folder / "train.parquet")
            classes = train["label"]
        else:
            train = pd.read_parquet(said)
            classes = (train["label"] == "positive").astype(int)
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        model = LogisticRegression(C=10, max_iter=1000, random_state=self.seed)
        model.fit(words.fit_transform(train["sentence"]), classes)
        size = round(8 * (model.coef_.size + len(words.idf_)) / 1e6, 1)

        def read_texts(texts: list[str]) -> np.ndarray:
            found: np.ndarray = model.predict(words.transform(texts))
            return found

        return self._kept(read_texts(self.texts), read_texts, size)

    # ---- embeddings ----

    def embedders(self, task: str, names: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
        """STS-B's models that have no record."""
        if not (missing := self._missing(task, names)):
            return
        self.inputs.make()
        dev = pd.read_csv(self.inputs.dev, sep="\t", quoting=3, on_bad_lines="skip")
        for name in missing:
            folder = self.inputs.teacher
            if name == "static":
                folder = self._distilled(
                    "embedding-cosine", "embedder", **ROWS, **STATIC, kind="embedding", teacher=str(folder),
                    data=str(self.inputs.train), dev=str(self.inputs.dev), epochs=20,
                )  # fmt: skip
            if name.startswith("model2vec"):
                try:
                    read, size = self._model2vec()
                except ImportError as error:
                    print(f"{name}: left out ({error})", flush=True)
                    continue
            else:
                read, size = torch_reader(folder), megabytes(folder)
            one, other = (
                np.asarray(read([*map(str, dev[side])])) for side in ("sentence1", "sentence2")
            )
            cosines = (
                (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
            )
            score = 100 * float(spearmanr(cosines, dev["score"]).statistic)
            yield (
                name,
                measured(score, cosines.tolist(), read, [*map(str, dev["sentence1"])], size),
            )

    def _model2vec(self) -> tuple[Reader, float]:
        from model2vec.distill import distill_from_model
        from transformers import AutoModel, AutoTokenizer

        place = str(self.inputs.teacher)
        tokenizer: Any = AutoTokenizer.from_pretrained(place)
        made: Any = distill_from_model(AutoModel.from_pretrained(place), tokenizer, pca_dims=256)
        folder = self.work / "model2vec"
        made.save_pretrained(folder)
        return made.encode, megabytes(folder)


def read() -> dict[str, Any]:
    """By task and model what each seed came to."""
    found: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return found


def table() -> None:
    """Mean and, of several seeds, deviation: one row a model."""
    for task, models in read().items():
        score = "Spearman" if task == "STS-B" else "accuracy"
        print(f"| {task} | {score} | seeds | microseconds a text | MB |")
        print("|:---|---:|---:|---:|---:|")
        for name in TASKS[task]:
            if not (runs := [*models.get(name, {}).values()]):
                continue
            scores = [run["score"] for run in runs]
            spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
            micro, size = (
                statistics.median(run[key] for run in runs) for key in ("microseconds", "mb")
            )
            mean = statistics.mean(scores)
            print(f"| {name} | {mean:.1f}{spread} | {len(runs)} | {micro:.0f} | {size:.1f} |")
        print()


def main() -> None:
    """Run what has no record yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure what has no record yet")
    run.add_argument("--model", required=True, help="folder of all-MiniLM-L6-v2")
    run.add_argument("--data", required=True, help="GLUE folder")
    run.add_argument("--work", type=Path, default=Path("runs/static"))
    run.add_argument("--unlabelled-rows", type=int, metavar="N", help="of SST-2 (default: all)")
    run.add_argument("--seeds", type=int, default=5)
    shown = commands.add_parser("table", help="print the record's tables")
    shown.add_argument("--markdown", action="store_true", help="as the page prints it")
    args = parser.parse_args()
    if args.command == "table":
        table()
        return
    torch.set_num_threads(1)
    for seed in range(1, args.seeds + 1):
        Bench(args, seed).run()


if __name__ == "__main__":
    main()
