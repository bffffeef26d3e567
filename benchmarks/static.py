"""Static students beside what else answers in microseconds, on real text: their scores, speed and size.

Of SST-2, 20 Newsgroups and Reuters-52 1,000 training rows keep their labels, and all others lose them. MiniLM-6 is
fine-tuned on the labeled rows. The teacher's logits of all rows teach a static student. Beside it: TF-IDF and
logistic regression on the teacher's classes of the same rows, and on the labels alone; model2vec's own classifier and a
3-layer student on the labels alone; cascades of static student and teacher, also with a taught 3-layer student in int8
between. Of embeddings, all-MiniLM-L6-v2's of 20,000 sentences of GLUE teach a static student, and 80,000 another.
Beside them: model2vec's own `distill` of the same teacher, and that one trained by Tokenlearn on the same 20,000.
And 2 and 3 layers of the teacher, the upper of each group, which learn the embeddings of the same 20,000. All are
scored on STS-B's dev and test pairs.

    python benchmarks/static.py run --model MINILM_DIR --data GLUE_DIR --texts TEXTS_DIR [--work DIR] [--seeds 5]
        [--tasks SST-2 STS-B "20 Newsgroups" Reuters-52 Questions]
    python benchmarks/static.py table

Resumable: models with a record in `benchmarks/records/static.json` are not made again. Records keep of each dev row
whether it was right, and of a test pair its cosine. model2vec's rows need `pip install --no-deps skeletoken
tokenlearn`, which with their bounds would lower transformers; without them they are left out. The similarities of
STS-B's test pairs come from `embedding_test.py`'s record; its models' times are those of seed 1.
"""

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr, ttest_1samp, ttest_rel
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

import embedding_test
import limbeck
from embeddings import SIMILARITIES, Inputs
from limbeck.data import load_task
from limbeck.evaluation.row_tests import bootstrap
from limbeck.exporting.cascade import cascade
from limbeck.recipe import Recipe
from limbeck.records.record import read_raw
from limbeck.runtimes.manifest import is_export
from limbeck.static import StaticReader
from limbeck.students import load_model, read_tokenizer
from limbeck.tasks.metrics import correlation
from study import JsonRecord, records_of

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # times are of one thread
RECORD = JsonRecord("static")
STATIC_NAME, TFIDF = "static, teacher's logits", "TF-IDF, teacher's classes"
BY_KD = "static by kd, without word pairs"
# The students before the teacher, and what its thresholds are to reach.
CASCADES: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {
    "cascade, static then teacher": (("static",), {"max_drop": 0.3}),
    "cascade at a fifth of the cost": (("static",), {"cost": 20.0}),
    "cascade, static, 3 layers, teacher": (("static", "3 layers"), {"max_drop": 0.3}),
    "cascade, static, 3 layers, teacher, at a fifth of the cost": (
        ("static", "3 layers"),
        {"cost": 20.0},
    ),
    "cascade, 3 layers then teacher": (("3 layers",), {"max_drop": 0.3}),
}
MEMBERS = {
    ("static",): "",
    ("static", "3 layers"): ", 3 layers in int8 between",
    ("3 layers",): ", 3 layers in int8 first",
}
LABELED = (
    "teacher, 6 layers",
    "3 layers, labels alone",
    STATIC_NAME,
    TFIDF,
    "TF-IDF, labels alone",
    "model2vec, labels alone",
    *CASCADES,
)
WITHOUT, WIDE = "static without word pairs", "static of the teacher's width"
# Method, folder and settings of each static student of classes; a cascade's first is the task's better one.
STATICS: dict[str, tuple[str, str, dict[str, Any]]] = {
    STATIC_NAME: ("logit-mse", "static", {}),
    WITHOUT: ("logit-mse", "without-pairs", {"student.pairs": 0}),
    BY_KD: ("kd", "by-kd", {"student.pairs": 0}),
}
FIRST = {"Reuters-52": BY_KD}
LONG = (*LABELED[:3], BY_KD, *LABELED[3:])  # texts of a hundred words
TASKS = {
    "SST-2": (*LABELED[:3], WITHOUT, *LABELED[3:]),
    "20 Newsgroups": LONG,
    "Reuters-52": LONG,
    "Questions": LABELED,
    "STS-B": (
        "teacher, 6 layers",
        "static",
        WIDE,
        "static of the teacher's width, 80,000 sentences",
        "3 layers",
        "2 layers",
        "model2vec distill",
        "model2vec distill, then Tokenlearn",
    ),
}
FILES = {"20 Newsgroups": "newsgroups", "Reuters-52": "reuters52", "Questions": "questions.csv"}
LABELS = 1000
ROWS: dict[str, Any] = {"precision": "auto", "attention": "eager", "floor": False}
LENGTHS = {"SST-2": 64, "STS-B": 64, "20 Newsgroups": 128, "Reuters-52": 128, "Questions": 64}
STATIC = {"student.static": True, "batch_size": 128}
# Positive, then negative: by a negation, by where a word stands, by a word alone.
PAIRS = {
    "negation": [
        ("a good film", "not a good film"),
        ("this is funny", "this is not funny"),
        ("i liked it", "i did not like it"),
        ("the acting is great", "the acting is not great"),
        ("it never bores", "it never entertains"),
        ("you will not regret seeing it", "you will regret seeing it"),
        ("not a bad movie at all", "a bad movie"),
        ("there is nothing wrong with it", "there is nothing right with it"),
        ("it lacks no charm", "it lacks charm"),
        ("hardly a dull moment", "hardly a bright moment"),
        ("it is far from boring", "it is far from exciting"),
        ("no one will be disappointed", "no one will be pleased"),
    ],
    "word order": [
        ("bad start , but a good film", "good start , but a bad film"),
        ("it looks cheap and feels rich", "it looks rich and feels cheap"),
        ("less silly than it is clever", "less clever than it is silly"),
        ("from dull to brilliant", "from brilliant to dull"),
        ("more charm than noise", "more noise than charm"),
        ("the script is weak , yet the film works", "the film is weak , yet the script works"),
        ("i expected trash and got a gem", "i expected a gem and got trash"),
        ("the book bored me , the film moved me", "the book moved me , the film bored me"),
        ("starts slow and ends strong", "starts strong and ends slow"),
        ("fails at nothing it tries", "tries at nothing , and fails"),
        ("once tired , now fresh", "once fresh , now tired"),
        ("critics hate it and i love it", "critics love it and i hate it"),
    ],
    "words": [
        ("a brilliant film", "a terrible film"),
        ("wonderful acting", "awful acting"),
        ("it is a delight", "it is a disaster"),
        ("funny and warm", "dull and cold"),
        ("an excellent script", "a lazy script"),
        ("moving and honest", "fake and empty"),
        ("a triumph", "a failure"),
        ("smart , fresh and lively", "stupid , stale and lifeless"),
        ("superb from start to end", "tedious from start to end"),
        ("one of the best of the year", "one of the worst of the year"),
        ("i loved it", "i hated it"),
        ("a pleasure to watch", "a pain to watch"),
    ],
}
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


@dataclass(frozen=True)
class Sample:
    """A task's rows: 1,000 with labels, the others without, and dev rows of which neither holds the text."""

    task: str
    seed: int
    work: Path
    args: argparse.Namespace

    @property
    def folder(self) -> Path:
        """Where its files lie."""
        return self.work / "rows" / f"{self.task.replace(' ', '-')}-s{self.seed}"

    @property
    def rest(self) -> Path:
        """The rows without labels."""
        return self.folder / "unlabelled" / "rest.parquet"

    def make(self) -> None:
        """Write the files that are not there. Each class has a labeled row."""
        if (self.folder / "dev.parquet").exists():
            return
        train, dev = self._rows()
        train = train[~train["text"].isin(set(dev["text"]))].drop_duplicates("text")
        mixed = train.sample(frac=1.0, random_state=self.seed)
        first = mixed.drop_duplicates("label")
        labeled = pd.concat([first, mixed.drop(first.index)])[:LABELS]
        self.rest.parent.mkdir(parents=True, exist_ok=True)
        labeled.to_parquet(self.folder / "train.parquet", index=False)
        mixed.drop(labeled.index)[["text"]].to_parquet(self.rest, index=False)
        dev.to_parquet(self.folder / "dev.parquet", index=False)

    def _rows(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        if self.task in FILES:
            place = Path(self.args.texts) / FILES[self.task]
            if place.suffix:  # one file
                rows = pd.read_csv(place)[["text", "label"]].sample(frac=1.0, random_state=0)
                return rows[1000:], rows[:1000]
            train, dev = (pd.read_csv(place / f"{split}.csv") for split in ("train", "test"))
            # By lines: the same thousand for each seed.
            return train, dev.sample(1000, random_state=0)
        known, splits = load_task("sst2", self.args.data)
        found = []
        for split in ("train", "dev"):
            labels = [known.labels[label] for label in splits[split]["label"]]
            found.append(pd.DataFrame({"text": splits[split]["sentence"], "label": labels}))
        return found[0], found[1]


class Bench:
    """One seed: where its runs lie, and the record that all share."""

    def __init__(self, args: argparse.Namespace, seed: int) -> None:
        self.seed, self.work, self.model, self.args = seed, args.work.resolve(), args.model, args
        self.inputs = Inputs(args.model, Path(args.data), self.work / "stsb", 20_000)

    def run(self) -> None:
        """Measure what is not in the record, one model after the other."""
        for task in self.args.tasks:
            make = self.embedders if task == "STS-B" else self.classifiers
            for name, found in make(task, TASKS[task]):
                RECORD.keep(found, task, name, self.seed)
                print(task, self.seed, name, found["score"], found["microseconds"], flush=True)

    def _missing(self, task: str, names: tuple[str, ...]) -> list[str]:
        found = [name for name in names if not RECORD.has(task, name, self.seed)]
        if find_spec("skeletoken") is None or find_spec("tokenlearn") is None:
            print(
                f"{task}: model2vec is left out: pip install --no-deps skeletoken tokenlearn",
                flush=True,
            )
            found = [name for name in found if not name.startswith("model2vec")]
        return found

    def _distilled(self, method: str, name: str, **settings: Any) -> Path:
        recipe = Recipe.load(method, seed=self.seed, **settings)
        out = self.work / f"{name}-s{self.seed}"
        return limbeck.distill(recipe, out=out, report=False).path / "student"

    # ---- classes ----

    def classifiers(
        self, task: str, names: tuple[str, ...]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """A task's models that have no record."""
        if not (missing := self._missing(task, names)):
            return
        self.sample = Sample(task, self.seed, self.work, self.args)
        self.sample.make()
        length, folder = LENGTHS[task], self.sample.folder
        rows = {
            **ROWS, "task": "own-rows", "data": str(folder / "train.parquet"), "dev": str(folder / "dev.parquet"),
            "text_columns": ["text"], "label_column": "label", "max_length": length,
        }  # fmt: skip
        small = {"student.init": self.model, "epochs": 6, "batch_size": 16, "lr": 5e-5}
        if task in FILES:  # many classes, few rows of each
            small |= {"epochs": 12, "lr": 1e-4}
        teacher = self._distilled("finetune", f"{task}-teacher", **rows, **small)
        dev = pd.read_parquet(folder / "dev.parquet")
        self.texts, self.labels = list(dev["text"]), list(dev["label"])
        said = self.work / f"{task}-labels-s{self.seed}.parquet"
        if not said.exists():
            limbeck.label(
                teacher.parent, folder / "train.parquet", unlabelled=str(self.sample.rest), text_columns=["text"],
                out=str(said.with_suffix("")), to=str(said), max_length=length, outputs=["logits"],
            )  # fmt: skip
        taught = {
            **rows, **STATIC, "teacher": str(teacher.parent), "outputs": [str(said.with_suffix(""))],
            "unlabelled": [str(self.sample.rest)], "unlabelled_duplicates": "drop",
        }  # fmt: skip
        for name in missing:
            if name.startswith("TF-IDF"):
                yield name, self._words(name, said)
            elif name.startswith("model2vec"):
                yield name, self._model2vec_classes()
            elif name.startswith("cascade"):
                students, wish = CASCADES[name]
                members = [self._member(one, taught) for one in students]
                yield name, self._cascade([*members, teacher.parent], wish)
            elif name.startswith("3 layers"):
                three = {"lr": 1e-4, "epochs": 10, "student.layers": 3, "student.pick": "first"}
                yield (
                    name,
                    self._kept(
                        self._distilled("finetune", f"{task}-three", **{**rows, **small, **three})
                    ),
                )
            elif name in STATICS:
                yield name, self._kept(self._static(name, taught))
            else:
                yield name, self._kept(teacher)

    def _static(self, name: str, taught: dict[str, Any]) -> Path:
        """A static student of classes, by its name."""
        method, short, own = STATICS[name]
        return self._distilled(method, f"{self.sample.task}-{short}", **taught, **own)

    def _member(self, student: str, taught: dict[str, Any]) -> Path:
        """A student of a cascade; the static one is the better one of its task."""
        if student == "3 layers":
            return self._taught_int8(f"{self.sample.task}-taught", taught)
        return self._static(FIRST.get(self.sample.task, STATIC_NAME), taught).parent

    def _taught_int8(self, name: str, taught: dict[str, Any]) -> Path:
        """An int8 file of 3 of the teacher's layers, thinner, which learned its logits of all rows."""
        # A quarter of the feed-forward units: as fast as 2 layers, and better (docs/smaller-students.md).
        own = {
            "student.layers": 3,
            "student.pick": "skip",
            "student.ffn": 384,
            "student.static": False,
        }
        steps = {"lr": 2e-4, "epochs": 24, "batch_size": 32}
        run = self._distilled("logit-mse", name, **{**taught, **own, **steps}).parent
        place = run.with_name(f"{run.name}-int8")
        if not is_export(place):
            limbeck.export(run, out=place, format="onnx-int8", max_drop=100.0, threads=1)
        return place

    def _kept(self, folder: Path) -> dict[str, Any]:
        """What is kept of a student's folder."""
        reader = torch_reader(folder)
        names = json.loads((folder / "config.json").read_text(encoding="utf-8"))["id2label"]

        def classes(texts: list[str]) -> list[str]:
            return [names[str(place)] for place in reader(texts).argmax(1)]

        found = self._scored(classes, megabytes(folder))
        cost = json.loads((folder.parent / "record.json").read_text(encoding="utf-8"))["cost"]
        found["rows_an_hour"] = round(3600 * cost["student_examples"] / cost["student_seconds"])
        if self.sample.task == "SST-2":
            for kind, pairs in PAIRS.items():
                given = [classes([*pair]) == ["positive", "negative"] for pair in pairs]
                found[kind] = sum(given)
        return found

    def _scored(self, classes: Reader, size: float) -> dict[str, Any]:
        given = classes(self.texts)
        right = [ours == theirs for ours, theirs in zip(given, self.labels, strict=True)]
        found = measured(100 * float(np.mean(right)), right, classes, self.texts, size)
        macro = f1_score(self.labels, given, average="macro", zero_division=0)
        return found | {"macro_f1": round(100 * float(macro), 2)}

    def _words(self, name: str, said: Path) -> dict[str, Any]:
        train = pd.read_parquet(self.sample.folder / "train.parquet" if "alone" in name else said)
        words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        model = LogisticRegression(C=10, max_iter=1000, random_state=self.seed)
        model.fit(words.fit_transform(train["text"]), train["label"])
        size = round(8 * (model.coef_.size + len(words.idf_)) / 1e6, 1)
        return self._scored(lambda texts: list(model.predict(words.transform(texts))), size)

    def _model2vec_classes(self) -> dict[str, Any]:
        from model2vec.train import StaticModelForClassification

        self.inputs.make()
        self._model2vec()
        train = pd.read_parquet(self.sample.folder / "train.parquet")
        torch.manual_seed(self.seed)
        place = str(self.work / "model2vec")
        model: Any = StaticModelForClassification.from_pretrained(path=place)
        model.fit(list(train["text"]), list(train["label"]))
        return self._scored(
            lambda texts: list(model.predict(texts)), megabytes(self.work / "model2vec")
        )

    def _cascade(self, runs: list[Path], wanted: dict[str, float]) -> dict[str, Any]:
        place = self.work / f"{self.sample.task}-cascade-s{self.seed}"
        made = cascade(runs, place, wanted=wanted, overwrite=True)
        point, slow = made.shown, made.members[-1]
        return {
            "score": round(point.score, 2),
            "microseconds": round(1e6 * point.seconds, 1),
            "mb": 0.0,
            "sent": round(point.sent[-1], 4),  # to the teacher
            "difference": made.difference,
            "speedup": round(slow.seconds / point.seconds, 2),
        }

    # ---- embeddings ----

    def embedders(self, task: str, names: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
        """STS-B's models that have no record."""
        if not (missing := self._missing(task, names)):
            return
        self.inputs.make()
        pairs = {"dev": pd.read_csv(self.inputs.dev, sep="\t", quoting=3, on_bad_lines="skip")}
        place = Path(self.args.data) / "STS-B" / "test.tsv"
        pairs["test"] = pd.read_csv(place, sep="\t", quoting=3).assign(score=similarities())
        for name in missing:
            folder = self.inputs.teacher
            inputs = self.inputs
            own: dict[str, Any] = {**STATIC, "epochs": 20}
            if "width" in name:
                own |= {"student.width": 384}
            if "80,000" in name:
                inputs = replace(inputs, sentences=80_000)
                inputs.make()
                own |= {"epochs": 10}
            if name[0].isdigit():
                own = {
                    "student.layers": int(name[0]),
                    "student.pick": "upper",
                    "batch_size": 32,
                    "epochs": 2,
                    "lr": 3e-4,
                }
            if not name.startswith(("teacher", "model2vec")):
                folder = self._distilled(
                    "embedding-cosine", f"embedder-{name.replace(' ', '-')}", **ROWS, **own, kind="embedding",
                    teacher=str(folder), data=str(inputs.train), dev=str(self.inputs.dev), max_length=64,
                )  # fmt: skip
            if name.startswith("model2vec"):
                read, size = self._model2vec(tokenlearn="Tokenlearn" in name)
            else:
                # A static one by the reader that ships with it.
                reader = StaticReader if name.startswith("static") else torch_reader
                read, size = reader(folder), megabytes(folder)
            cosines = {split: cosines_of(read, rows) for split, rows in pairs.items()}
            dev, test = (
                100 * float(spearmanr(cosines[split], rows["score"]).statistic)
                for split, rows in pairs.items()
            )
            texts = [*map(str, pairs["dev"]["sentence1"])]
            found = measured(dev, cosines["test"].tolist(), read, texts, size)
            yield name, found | {"test": round(test, 2)}

    def _model2vec(self, *, tokenlearn: bool = False) -> tuple[Reader, float]:
        from model2vec.distill import distill_from_model
        from transformers import AutoModel, AutoTokenizer

        place = str(self.inputs.teacher)
        tokenizer: Any = AutoTokenizer.from_pretrained(place)
        precision = "float32" if tokenlearn else "float16"
        made: Any = distill_from_model(
            AutoModel.from_pretrained(place), tokenizer, pca_dims=256, quantize_to=precision
        )
        folder = self.work / ("tokenlearn" if tokenlearn else "model2vec")
        if tokenlearn:
            from tokenlearn.train import train_model

            torch.manual_seed(self.seed)
            texts = self.inputs.train.read_text(encoding="utf-8").splitlines()
            # The teacher's own vectors are means over tokens, what Tokenlearn learns.
            made = train_model(made, texts, torch_reader(self.inputs.teacher)(texts))
        made.save_pretrained(folder)
        return made.encode, megabytes(folder)


@cache
def similarities() -> list[float]:
    """Of STS-B's test pairs, from 0 to 5, by people."""
    found: list[float] = read_raw(records_of(embedding_test.STUDY))[embedding_test.PEOPLE][
        SIMILARITIES
    ]
    return found


def cosines_of(read: Reader, pairs: pd.DataFrame) -> np.ndarray:
    one, other = (np.asarray(read([*map(str, pairs[side])])) for side in ("sentence1", "sentence2"))
    both = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    found: np.ndarray = (one * other).sum(1) / both
    return found


def table() -> None:
    """Mean and, of several seeds, deviation: one row a model. Then what the issue of pairs and cascades comes to."""
    record = RECORD.read()
    for task, models in record.items():
        macro = task in FILES
        score = "Spearman" if task == "STS-B" else "accuracy"
        more = " macro F1 |" * macro + " test | share of the teacher's, test |" * (task == "STS-B")
        print(f"| {task} | {score} |{more} seeds | microseconds a text | MB |")
        print(f"|:---|---:|{'---:|' * (more.count('|'))}---:|---:|---:|")
        for name in TASKS[task]:
            if name.startswith("cascade") or not (runs := [*models.get(name, {}).values()]):
                continue
            scores = [run["score"] for run in runs]
            spread = f" ± {statistics.stdev(scores):.1f}" if len(scores) > 1 else ""
            micro, size = (
                statistics.median(run[key] for run in runs if key in run)
                for key in ("microseconds", "mb")
            )
            own = f" {statistics.mean(run['macro_f1'] for run in runs):.1f} |" if macro else ""
            if task == "STS-B":
                test, whole = (
                    statistics.mean(run["test"] for run in models[one].values())
                    for one in (name, LABELED[0])
                )
                own = f" {test:.1f} | {100 * test / whole:.1f} % |"
            print(
                f"| {name} | {statistics.mean(scores):.1f}{spread} |{own} {len(runs)} | {micro:.0f} | {size:.1f} |"
            )
        print()
    heads = (
        "chosen",
        "seeds",
        "sent on",
        "score less the teacher's",
        "95 % over seeds",
        "speed-up",
    )
    print(f"| cascade of static student and teacher | {' | '.join(heads)} |")
    print("|:---|:---|---:|---:|---:|---:|---:|")
    cascades = itertools.product(record.items(), CASCADES.items())
    for (task, models), (name, (students, wish)) in cascades:
        if runs := [*models.get(name, {}).values()]:
            gaps = [run["difference"]["difference"] for run in runs]
            sent, less, faster = (
                statistics.mean(values)
                for values in (
                    [100 * run["sent"] for run in runs],
                    gaps,
                    [run["speedup"] for run in runs],
                )
            )
            within = "–"
            if len(runs) > 2:
                low, high = ttest_1samp(gaps, 0).confidence_interval()
                within = f"{low:+.2f} to {high:+.2f}"
            (chosen, value), *_ = wish.items()
            print(
                f"| {task}{MEMBERS[students]} | {chosen} {value:g} | {len(runs)} | {sent:.0f} % "
                f"| {less:+.2f} | {within} | {faster:.1f} × |"
            )
    print()
    for name in (STATIC_NAME, LABELED[1]):
        kept = [
            one["rows_an_hour"] for one in record["SST-2"][name].values() if "rows_an_hour" in one
        ]
        if kept:
            print(
                f"SST-2, {name}: {statistics.median(kept) / 1e6:.1f} million rows an hour are trained on"
            )
    print()
    runs = record["SST-2"]
    print("| pairs that both come out right, of 12 |" + "".join(f" {kind} |" for kind in PAIRS))
    print("|:---|" + "---:|" * len(PAIRS))
    for name in TASKS["SST-2"]:
        if (kept := [*runs.get(name, {}).values()]) and "negation" in kept[0]:
            means = (statistics.mean(run[kind] for run in kept) for kind in PAIRS)
            print(f"| {name} |" + "".join(f" {mean:.1f} |" for mean in means))
    print()
    print(
        "| static student less | points | 95 % over rows | 95 % over seeds, paired t test | seeds |"
    )
    print("|:---|---:|---:|---:|---:|")
    for (task, models), own in itertools.product(record.items(), (STATIC_NAME, BY_KD, WIDE)):
        for other in TASKS[task]:
            ours, theirs = models.get(own, {}), models.get(other, {})
            both = sorted({*ours} & {*theirs})
            if other != own and both and not other.startswith("cascade"):
                said = _difference(
                    task, *([runs[seed] for seed in both] for runs in (ours, theirs))
                )
                by = " (by kd)" if own == BY_KD else ""
                print(f"| {task}{by}: {other} | {said} | {len(both)} |")


def _score(task: str, run: dict[str, Any], chosen: np.ndarray) -> np.ndarray:
    """Of some rows (B, n) a run's score, 0 to 100: its accuracy, or Spearman's correlation with people."""
    predictions = np.array(run["predictions"])
    if task == "STS-B":
        return correlation(predictions, np.array(similarities()), ranks=True)(chosen)
    found: np.ndarray = 100 * predictions[chosen].mean(-1)
    return found


def _difference(task: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> str:
    """The mean difference of some seeds' scores, its interval over rows by bootstrap, and over seeds."""
    key = "test" if task == "STS-B" else "score"
    rows = len(ours[0]["predictions"])

    def gap(chosen: np.ndarray) -> np.ndarray:
        mean_of = [
            np.mean([_score(task, run, chosen) for run in runs], axis=0) for runs in (ours, theirs)
        ]
        return np.asarray(mean_of[0] - mean_of[1])

    interval = bootstrap(gap, rows)
    assert interval is not None
    said = f"{gap(np.arange(rows)[None])[0]:+.1f} | {interval[0]:+.1f} to {interval[1]:+.1f} |"
    if len(ours) < 3:
        return f"{said} too few seeds"
    test = ttest_rel(*([run[key] for run in runs] for runs in (ours, theirs)))
    low, high = test.confidence_interval()
    return f"{said} {low:+.1f} to {high:+.1f} (p = {test.pvalue:.2g})"


def main() -> None:
    """Run what has no record yet, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure what has no record yet")
    run.add_argument("--model", required=True, help="folder of all-MiniLM-L6-v2")
    run.add_argument("--data", required=True, help="GLUE folder")
    run.add_argument("--work", type=Path, default=Path("runs/static"))
    run.add_argument("--texts", required=True, help="folder of get-texts")
    run.add_argument("--tasks", nargs="+", choices=TASKS, default=[*TASKS])
    run.add_argument("--seeds", type=int, default=5)
    commands.add_parser("table", help="print the record's tables")
    args = parser.parse_args()
    if args.command == "table":
        table()
        return
    torch.set_num_threads(1)
    for seed in range(1, args.seeds + 1):
        Bench(args, seed).run()


if __name__ == "__main__":
    main()
