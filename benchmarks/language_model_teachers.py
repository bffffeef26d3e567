"""A real language model teaches 3-layer encoders: by a prompt, fine-tuned, by yes and no, and as an embedder.

SmolLM2-135M-Instruct reads the questions of TREC (six classes, fifty topics) and teaches the first three layers of a
MiniLM. 2,000 questions have no label, 1,000 are held out, and 500 others have labels to fine-tune the language model.
The reranker's lists are topics as queries with questions of the topic and others. Every student is exported as int8
and scored by that file.

    python benchmarks/language_model_teachers.py run --model SMOLLM2_DIR --encoder MINILM_DIR --questions CSV
        [--work DIR]
    python benchmarks/language_model_teachers.py table

Resumable: what `benchmarks/records/language_model_teachers.json` holds is not made again. Seconds are CPU time of one
thread. The prompt was chosen among ten, on 100 labeled rows that are not used here. The one of yes and no was chosen
among seven: four tried on rows set aside, three on lists of rows behind the held-out ones.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr
from sklearn.metrics import ndcg_score

import limbeck
from limbeck.labelling.language_models.causal import load_causal_labeller
from limbeck.labelling.language_models.prompt import Prompt, bind_prompt
from limbeck.latency.settings import BenchSettings
from limbeck.records import hardware, versions
from limbeck.students.execution import resolve_precision
from limbeck.support.files import write_whole

RECORD = Path(__file__).parent / "records" / "language_model_teachers.json"
UNLABELED, HELD_OUT, LABELED, ASIDE = 2000, 1000, 500, 200
LENGTH, PRECISION = 32, resolve_precision("auto")
PROMPT = Prompt(
    chat=False,
    template="{examples}Question: {text}\nType of answer:",
    example="Question: {text}\nType of answer: {answer}\n\n",
    verbalizations={
        "ABBR": "abbreviation", "DESC": "explanation", "ENTY": "thing", "HUM": "person", "LOC": "place",
        "NUM": "number",
    },
    examples=[
        {"text": "How many people live in Chile ?", "class": "NUM"},
        {"text": "Who wrote The Tempest ?", "class": "HUM"},
        {"text": "What is a nebula ?", "class": "DESC"},
        {"text": "Where is Mount Etna ?", "class": "LOC"},
        {"text": "What color is a ruby ?", "class": "ENTY"},
        {"text": "What does NATO stand for ?", "class": "ABBR"},
        {"text": "Why does iron rust ?", "class": "DESC"},
        {"text": "What sport do the Cubs play ?", "class": "ENTY"},
        {"text": "What country has the most lakes ?", "class": "LOC"},
        {"text": "What president was born in Ohio ?", "class": "HUM"},
        {"text": "When was the telephone invented ?", "class": "NUM"},
        {"text": "How do you make bread ?", "class": "DESC"},
    ],
)  # fmt: skip
TOPICS = {
    "ENTY:animal": "an animal", "ENTY:food": "food", "ENTY:sport": "a sport", "ENTY:color": "a color",
    "ENTY:cremat": "a book, film or song", "ENTY:dismed": "a disease", "ENTY:event": "an event",
    "LOC:city": "a city", "LOC:country": "a country", "LOC:state": "a state", "NUM:date": "a date",
    "NUM:money": "an amount of money", "NUM:count": "a count", "NUM:dist": "a distance",
    "NUM:period": "a span of time", "HUM:gr": "a company or group", "HUM:ind": "a person",
    "ABBR:exp": "the meaning of an abbreviation", "DESC:def": "a definition", "DESC:reason": "a reason",
    "DESC:manner": "a way to do something",
}  # fmt: skip
_ANSWER = "Question: {}\nThe answer is {}:"
_SHOTS = [
    ("Who wrote The Tempest ?", "a person", "yes"),
    ("Where is Mount Etna ?", "a number", "no"),
    ("What is a nebula ?", "a definition", "yes"),
    ("How many people live in Chile ?", "a count", "yes"),
    ("What color is a ruby ?", "a place", "no"),
    ("What does NATO stand for ?", "an abbreviation", "yes"),
    ("When was the telephone invented ?", "a person", "no"),
    ("What sport do the Cubs play ?", "a sport", "yes"),
]
YES_NO = Prompt(
    chat=False,
    template="".join(f"{_ANSWER.format(text, topic)} {said}\n\n" for text, topic, said in _SHOTS)
    + _ANSWER.format("{passage}", "{query}"),
    score=["no", "yes"],
)
# Relevant questions of a topic, and others beside them: of unlabeled rows to train on, and of held-out ones.
LISTS = {"train": ("unlabeled", 12, 36), "dev": ("held_out", 4, 12)}
SMALL = {
    "student.layers": 3, "student.pick": "first", "max_length": LENGTH, "batch_size": 32, "lr": 2e-4, "seed": 1,
    "floor": False,
}  # fmt: skip
ROWS: dict[str, Any] = {
    "task": "questions", "text_columns": ["text"], "label_column": "label", "classes": [*(PROMPT.verbalizations or ())],
}  # fmt: skip
SIZES = (250, 500, 1000, UNLABELED)
EPOCHS = {250: 24, 500: 12, 1000: 10, UNLABELED: 6}
LABELER, CLASSIFIER, RERANKER, EMBEDDER = "prompt", "fine-tuned", "yes/no reranker", "embedder"


class Bench:
    """The rows, the record and the runs."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.model, self.encoder = args.model, args.encoder
        self.work: Path = args.work.resolve()
        self.questions = args.questions
        self.earlier = 0.0
        """CPU seconds of stages that an earlier start made."""

    def run(self) -> None:
        """Measure what the record does not hold."""
        self.write_rows()
        for name, make in (
            (LABELER, self.labeler),
            (CLASSIFIER, self.classifier),
            (RERANKER, self.reranker),
            (EMBEDDER, self.embedder),
            ("rows", self.by_rows),
            ("speed", self.speed),
        ):
            if name in read():
                continue
            began, self.earlier = time.process_time(), 0.0
            found = make()
            seconds = time.process_time() - began + self.earlier
            keep(name, found | {"cpu_seconds": round(seconds, 1)})
            print(name, json.dumps(read()[name])[:400], flush=True)

    # ---- rows ----

    @cached_property
    def frame(self) -> pd.DataFrame:
        """All questions, in a fixed order."""
        return pd.read_csv(self.questions).drop_duplicates("text").sample(frac=1, random_state=0)

    @cached_property
    def parts(self) -> dict[str, pd.DataFrame]:
        """Unlabeled, held out, set aside to choose the prompt by, labeled."""
        counts = np.cumsum([UNLABELED, HELD_OUT, ASIDE, LABELED])
        cut = np.split(np.arange(len(self.frame)), counts)
        names = ("unlabeled", "held_out", "aside", "labeled", "rest")
        return {name: self.frame.iloc[rows] for name, rows in zip(names, cut, strict=True)}

    def file(self, name: str) -> Path:
        """A file of rows."""
        return self.work / name

    def write_rows(self) -> None:
        """The files of rows."""
        self.work.mkdir(parents=True, exist_ok=True)
        for name, rows in self.parts.items():
            columns = ["text"] if name == "unlabeled" else ["text", "label"]
            rows[columns].to_csv(self.file(f"{name}.csv"), index=False)
        for name, (part, relevant, others) in LISTS.items():
            lists = topic_lists(self.parts[part], relevant, others)
            text = "".join(json.dumps(one) + "\n" for one in lists)
            self.file(f"topics-{name}.jsonl").write_text(text, encoding="utf-8")

    # ---- stages ----

    def stage(self, name: str, make: Callable[[Path], Any]) -> float:
        """CPU seconds of a stage, which begins anew if it was stopped."""
        known = self.file("seconds.json")
        found = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
        place = self.file(name)
        if name not in found:
            shutil.rmtree(place, ignore_errors=True)
            began = time.process_time()
            make(place)
            found[name] = round(time.process_time() - began, 1)
            write_whole(known, json.dumps(found) + "\n")
        else:
            self.earlier += float(found[name])
        return float(found[name])

    def label(self, name: str, teacher: Path, rows: str, **settings: Any) -> float:
        """CPU seconds of a store, its table beside it."""
        given = {"text_columns": ["text"], "precision": PRECISION} | settings

        def make(place: Path) -> None:
            table = place.with_suffix(".csv")
            table.unlink(missing_ok=True)
            limbeck.label(str(teacher), self.file(rows), out=str(place), to=str(table), **given)

        return self.stage(name, make)

    def table(self, name: str) -> pd.DataFrame:
        """The table of a store."""
        return pd.read_csv(self.file(name).with_suffix(".csv"), keep_default_na=False)

    def student(self, name: str, method: str, **settings: Any) -> float:
        """CPU seconds of a student's training; its int8 file is made too."""
        given = {**SMALL, "student.init": str(self.encoder), **settings}

        def make(place: Path) -> None:
            limbeck.distill(limbeck.Recipe.load(method, **given), out=place, report=False)

        seconds = self.stage(name, make)
        if not (self.file(name) / "exported").exists():
            limbeck.export(self.file(name), format="onnx-int8", max_drop=100.0, threads=1)
        return seconds

    def int8(self, name: str) -> Path:
        """The exported folder of a student."""
        return self.file(name) / "exported" / "onnx-int8"

    def predicted(self, model: Path, rows: Any, output: str = "labels") -> list[Any]:
        """Predictions by a shipped file."""
        column = "prediction" if output == "labels" else "embedding"
        return [row[column] for row in limbeck.predict(model, rows, output=[output])]

    def shipped(self, name: str) -> dict[str, float]:
        """Milliseconds of a text and megabytes of a student's int8 file."""
        settings = BenchSettings.checked({"lengths": (16,), "passes": 100})
        report = limbeck.bench([self.int8(name)], settings, out=self.file(f"bench-{name}"))
        (found,) = report.measurements
        return {"ms": round(found.cpu_p50 or 0, 2), "mb": round(found.disk_mib * 1.048576, 1)}

    # ---- teachers ----

    def labels_measured(self, name: str, teacher: Path, **settings: Any) -> dict[str, Any]:
        """A teacher of classes: its labels, its student, and both on held-out rows."""
        seconds = self.label(f"{name}-labels", teacher, "unlabeled.csv", **settings)
        self.label(f"{name}-held-out", teacher, "held_out.csv", **settings)
        training = self.student(
            f"{name}-student", "kd-soft", **ROWS, data=str(self.file(f"{name}-labels.csv")),
            outputs=[str(self.file(f"{name}-labels"))], epochs=EPOCHS[UNLABELED],
        )  # fmt: skip
        truth = self.parts["held_out"].set_index("text")["label"]
        theirs = self.table(f"{name}-held-out").set_index("text")["label"][truth.index]
        rows = [{"text": text} for text in truth.index]
        ours = np.array(self.predicted(self.int8(f"{name}-student"), rows))
        return {
            "rows": UNLABELED, "label_seconds": seconds, "train_seconds": training, "measure": "accuracy",
            "teacher": percent(theirs == truth), "student": percent(ours == truth.to_numpy()),
            "agreement": percent(ours == theirs.to_numpy()),
        } | self.shipped(f"{name}-student")  # fmt: skip

    def labeler(self) -> dict[str, Any]:
        """A prompt alone."""
        return self.labels_measured("prompt", self.model, prompt=PROMPT)

    def classifier(self) -> dict[str, Any]:
        """Fine-tuned on labeled rows, it labels the others; the encoder on the same labels alone stands beside it."""
        tuning = self.stage("tuned", self._tune)
        found = self.labels_measured("tuned", self.file("tuned"), max_length=LENGTH)
        return found | {"labeled": LABELED, "tuning_seconds": tuning}

    def _tune(self, place: Path) -> None:
        settings = {
            **ROWS, "data": str(self.file("labeled.csv")), "test_share": 0.0, "student.init": str(self.model),
            "epochs": 3, "batch_size": 16, "lr": 5e-5, "max_length": LENGTH, "precision": "auto", "seed": 1,
            "floor": False,
        }  # fmt: skip
        limbeck.distill(limbeck.Recipe.load("finetune", **settings), out=place, report=False)

    def reranker(self) -> dict[str, Any]:
        """Log-odds of yes for a topic and a question, learned by a cross-encoder."""
        own = {"prompt": YES_NO, "text_columns": ["query", "passage"]}
        seconds = self.label("topics-labels", self.model, "topics-train.jsonl", **own)
        self.label("topics-held-out", self.model, "topics-dev.jsonl", **own)
        train = self.file("topics-train.jsonl")
        training = self.student(
            "topics-student", "listwise-kl", kind="pair-score", task="topics", data=str(train),
            dev=str(self.file("topics-dev.jsonl")), outputs=[str(self.file("topics-labels"))],
            epochs=8,
        )  # fmt: skip
        lists = read_lines(self.file("topics-dev.jsonl"))
        scored = (
            self.table("topics-held-out").set_index(["query", "passage"])["score"].astype(float)
        )
        theirs = [[scored[one["query"], passage] for passage in one["passages"]] for one in lists]
        ours = self.predicted(self.int8("topics-student"), self.file("topics-dev.jsonl"))
        pairs = sum(len(one["passages"]) for one in read_lines(train))
        order = [spearmanr(a, b).statistic for a, b in zip(ours, theirs, strict=True)]
        return {
            "rows": pairs, "label_seconds": seconds, "train_seconds": training, "measure": "nDCG@10",
            "teacher": ndcg(lists, theirs), "student": ndcg(lists, ours),
            "agreement": round(100 * float(np.nanmean(order)), 1),
            "chance": ndcg(lists, [[0.0] * len(one["passages"]) for one in lists]),
        } | self.shipped("topics-student")  # fmt: skip

    def embedder(self) -> dict[str, Any]:
        """The last token's state as an embedding; the score is the class of the nearest other question."""
        pairs = self.file("pairs.csv")
        same_class(self.parts["labeled"]).to_csv(pairs, index=False)
        texts = self.file("unlabeled.txt")
        texts.write_text("\n".join(self.parts["unlabeled"]["text"]) + "\n", encoding="utf-8")
        teacher: dict[str, Any] = {"pooling": "last", "precision": PRECISION}

        def make(place: Path) -> None:
            target = place.with_suffix(".parquet")
            target.unlink(missing_ok=True)
            limbeck.predict(self.model, texts, to=target, output=["embeddings"], **teacher)

        seconds = self.stage("embedded", make)
        training = self.student(
            "embedded-student", "embedding-mse", data=str(texts), kind="embedding", epochs=EPOCHS[UNLABELED],
            outputs=[str(self.file("embedded.parquet"))], dev=str(pairs),
        )  # fmt: skip
        held = self.parts["held_out"]
        rows = [{"text": text} for text in held["text"]]
        theirs = limbeck.predict(self.model, rows, output=["embeddings"], **teacher)
        before = self.predicted(self.encoder, rows, "embeddings")
        sims = [
            similarities([row["embedding"] for row in theirs]),
            similarities(self.predicted(self.int8("embedded-student"), rows, "embeddings")),
            similarities(before),
        ]
        labels = held["label"].to_numpy()
        nearest = [percent(labels[one.argmax(1)] == labels) for one in sims]
        upper = np.triu_indices(len(labels), 1)
        agreement = spearmanr(sims[0][upper], sims[1][upper]).statistic
        return {
            "rows": UNLABELED, "label_seconds": seconds, "train_seconds": training,
            "measure": "class of the nearest question", "teacher": nearest[0], "student": nearest[1],
            "agreement": round(100 * float(agreement), 1), "encoder": nearest[2],
        } | self.shipped("embedded-student")  # fmt: skip

    # ---- how many rows, and how fast ----

    def by_rows(self) -> dict[str, Any]:
        """Students of fewer rows that the prompt labeled, and of the people's labels alone."""
        known = read()
        of_all = {"prompt": known[LABELER], "tuned": known[CLASSIFIER]}
        found = {name: {str(UNLABELED): one["student"]} for name, one in of_all.items()}
        truth = self.parts["held_out"]
        rows = [{"text": text} for text in truth["text"]]
        stored = {"outputs": [str(self.file("prompt-labels"))]}
        sources: dict[str, tuple[pd.DataFrame, str, dict[str, Any]]] = {
            "prompt": (self.table("prompt-labels"), "kd-soft", stored),
            "labels": (self.parts["labeled"], "finetune", {}),
        }
        for labeler, (data, method, own) in sources.items():
            for count in (one for one in SIZES[:-1] if one <= len(data)):
                name = f"{labeler}-{count}"
                data[["text", "label"]][:count].to_csv(self.file(f"{name}.csv"), index=False)
                given = {**ROWS, "data": str(self.file(f"{name}.csv")), "epochs": EPOCHS[count]}
                self.student(name, method, **given, **own)
                said = np.array(self.predicted(self.int8(name), rows))
                right = percent(said == truth["label"].to_numpy())
                found.setdefault(labeler, {})[str(count)] = right
        return {"scores": found}

    def speed(self) -> dict[str, Any]:
        """Rows a second with keys and values used again and without, as the labeler reads the prompt."""
        bound = bind_prompt(PROMPT, tuple(PROMPT.verbalizations or ()), ("text",))
        made = load_causal_labeller(self.model, bound, precision=PRECISION)
        rows = [{"text": text} for text in self.parts["unlabeled"]["text"][:32]]
        found = {}
        for way in ("reused", "plain"):
            made.scorer.reuse = way == "reused"
            some = rows if made.scorer.reuse else rows[:8]
            began = time.process_time()
            made.score(some)
            found[way] = round(len(some) / (time.process_time() - began), 2)
        return {"rows_per_second": found}


def topic_lists(rows: pd.DataFrame, relevant: int, others: int) -> list[dict[str, Any]]:
    """Topics as queries with some relevant questions and others."""
    found = []
    for number, (fine, topic) in enumerate(TOPICS.items()):
        good = rows[rows["fine"] == fine]["text"][:relevant]
        bad = rows[rows["fine"] != fine].sample(others, random_state=number)["text"]
        labels = [1] * len(good) + [0] * len(bad)
        if len(good):
            found.append({"query": topic, "passages": [*good, *bad], "labels": labels})
    return found


def same_class(rows: pd.DataFrame) -> pd.DataFrame:
    """Neighbors as pairs, which score 1 if they are of one class: they choose an embedder's epoch."""
    first, second = rows[::2], rows[1::2]
    same = (first["label"].to_numpy() == second["label"].to_numpy()).astype(float)
    texts = {"sentence1": first["text"].to_numpy(), "sentence2": second["text"].to_numpy()}
    return pd.DataFrame(texts | {"score": same})


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Rows of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def ndcg(lists: list[dict[str, Any]], scores: list[list[float]]) -> float:
    """Scikit-learn's nDCG@10, the mean over lists."""
    found = [
        ndcg_score([one["labels"]], [own], k=10) for one, own in zip(lists, scores, strict=True)
    ]
    return round(100 * float(np.mean(found)), 1)


def similarities(embeddings: list[Any]) -> np.ndarray:
    """Cosines of all pairs, a text's own left out."""
    found = np.array(embeddings, dtype=np.float64)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    cosines: np.ndarray = found @ found.T
    np.fill_diagonal(cosines, -1)
    return cosines


def percent(right: Any) -> float:
    """Share of true values."""
    return round(100 * float(np.mean(right)), 1)


def read() -> dict[str, Any]:
    """The record; empty before the first run."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}


def keep(name: str, found: dict[str, Any]) -> None:
    """Add a part to the record."""
    record = read() | {name: found, "versions": versions(), "hardware": hardware()}
    write_whole(RECORD, json.dumps(record, indent=1) + "\n")


# ---- the tables of the page ----


def paid_after(found: dict[str, Any]) -> int:
    """Texts after which labels and training cost less than the teacher's own answers; either way it is fine-tuned."""
    spent = found["label_seconds"] + found["train_seconds"]
    own = found["label_seconds"] / found["rows"] - found["ms"] / 1000
    return int(np.ceil(spent / own))


def teacher_lines(record: dict[str, Any]) -> list[str]:
    """Each teacher and its student."""
    heads = (
        "teacher", "rows", "labeling, s", "training, s", "score", "teacher's", "student's", "agreement",
        "teacher, ms", "student, ms", "int8, MB", "paid after",
    )  # fmt: skip
    rows = []
    for name in (LABELER, CLASSIFIER, RERANKER, EMBEDDER):
        if (one := record.get(name)) is None:
            continue
        each = 1000 * one["label_seconds"] / one["rows"]
        rows.append(
            (
                name, f"{one['rows']:,}", f"{one['label_seconds']:.0f}", f"{one['train_seconds']:.0f}", one["measure"],
                f"{one['teacher']:.1f}", f"{one['student']:.1f}", f"{one['agreement']:.1f}", f"{each:.0f}",
                f"{one['ms']:.1f}", f"{one['mb']:.1f}", f"{paid_after(one):,}",
            )
        )  # fmt: skip
    return _table(heads, rows)


def rows_lines(record: dict[str, Any]) -> list[str]:
    """The student's accuracy by labeled rows and by who labeled them."""
    scores = record["rows"]["scores"]
    names = {"prompt": "prompt", "tuned": "fine-tuned", "labels": "people, no teacher"}
    rows = [
        (said, *(f"{scores[name][str(n)]:.1f}" if str(n) in scores[name] else "–" for n in SIZES))
        for name, said in names.items()
    ]
    return _table(("labeled by", *(f"{n:,} rows" for n in SIZES)), rows)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    marks = "|".join(("", ":---", *["---:"] * (len(heads) - 1), ""))
    first, *others = ("| " + " | ".join(row) + " |" for row in (heads, *rows))
    return [first, marks, *others]


def main() -> None:
    """Measure, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--model", type=Path, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--encoder", type=Path, help="folder of a MiniLM encoder")
    parser.add_argument("--questions", type=Path, help="CSV with text, label and fine topic")
    parser.add_argument("--work", type=Path, default=Path("runs/language_model_teachers"))
    args = parser.parse_args()
    if args.what == "run":
        torch.set_num_threads(1)
        Bench(args).run()
    for lines in (teacher_lines, rows_lines):
        print("\n".join([*lines(read()), ""]))


if __name__ == "__main__":
    main()
