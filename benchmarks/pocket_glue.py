"""What Pocket GLUE asks for: majority, bag of words, a two-layer student alone, the deep teacher.

    python benchmarks/pocket_glue.py [--tasks sst2 rte] [--work DIR]

For each task: the score of always giving the commonest label; of logistic regression (ridge for a
score) on word counts, for pairs also on which words the texts share; of a fresh two-layer model
trained on the labels for as many epochs as the teacher; and of the teacher. The numbers go to
benchmarks/records/pocket_glue.json, one task at a time. Resumable: a task whose data and settings
have not changed is not run again (`--again` does).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from rich.console import Console
from rich.table import Table
from scipy.sparse import hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from limbeck.data import load_task
from limbeck.lab import pocket
from limbeck.recipe import Recipe
from limbeck.records import hardware, versions
from limbeck.run import distill
from limbeck.scoring.evaluation import evaluate
from limbeck.support.files import write_whole
from limbeck.tasks import get_task
from limbeck.tasks.task import Task

RECORD = Path(__file__).parent / "records" / "pocket_glue.json"
SHALLOW = 2
TASKS = ("sst2", "cola", "rte", "qnli", "mrpc", "qqp", "mnli", "stsb", "wnli")
ROWS = ("majority", "bag_of_words", "two_layers_alone", "teacher")


def one_hot(classes: np.ndarray, task: Task) -> np.ndarray:
    """Predicted classes [n] as the predictions [n, classes] that `Task.scores` takes."""
    found: np.ndarray = np.eye(len(task.labels))[classes]
    return found


def majority(task: Task, train: Dataset, dev: Dataset) -> dict[str, Any]:
    """Score of the commonest training label; of the mean, where the label is a number."""
    labels = np.array(train["label"][:])
    if task.regression:
        predictions = np.full(len(dev), labels.mean())
    else:
        commonest = np.bincount(labels).argmax()
        predictions = one_hot(np.full(len(dev), commonest), task)
    return {"score": task.scores(predictions, np.array(dev["label"][:]))["primary"]}


def word_lists(task: Task, split: Dataset) -> list[list[list[str]]]:
    """The words of each text; for pairs also the words they share and those one of them lacks."""
    texts = [[text.split() for text in split[column][:]] for column in task.text_columns]
    if len(texts) == 2:
        pairs = [(set(first), set(second)) for first, second in zip(*texts, strict=True)]
        texts.append([sorted(first & second) for first, second in pairs])
        texts.append([sorted(first ^ second) for first, second in pairs])
    return texts


def word_counts(task: Task, train: Dataset, dev: Dataset) -> tuple[Any, Any]:
    """Sparse counts [examples, words of all lists] of train and dev."""
    train_parts, dev_parts = [], []
    for words, dev_words in zip(word_lists(task, train), word_lists(task, dev), strict=True):
        counter = CountVectorizer(analyzer=list)
        train_parts.append(counter.fit_transform(words))
        dev_parts.append(counter.transform(dev_words))
    return hstack(train_parts).tocsr(), hstack(dev_parts).tocsr()


def bag_of_words(task: Task, train: Dataset, dev: Dataset) -> dict[str, Any]:
    """A linear classifier on word counts."""
    began = time.process_time()
    features, dev_features = word_counts(task, train, dev)
    labels = np.array(train["label"][:])
    if task.regression:
        predictions = Ridge().fit(features, labels).predict(dev_features)
    else:
        model = LogisticRegression(max_iter=1000).fit(features, labels)
        predictions = one_hot(model.predict(dev_features), task)
    score = task.scores(predictions, np.array(dev["label"][:]))["primary"]
    return {"score": score, "cpu_seconds": time.process_time() - began}


def network(task: Task, work: Path, *, layers: int | None, **settings: Any) -> dict[str, Any]:
    """Train the teacher, or a fresh model of so few layers, by an ordinary limbeck run."""
    config = {} if layers is None else {"num_hidden_layers": layers}
    recipe = Recipe.load(
        "finetune",
        task=task.name,
        data="pocket",
        seed=1,
        student={"init": "pocket", "config": config},
        **settings,
    )
    began, cpu = time.perf_counter(), time.process_time()
    folder = work / f"{task.name}-{layers or 'teacher'}"
    result = distill(recipe, folder, overwrite=True, show=True, report=False)
    seconds = {
        "wall_seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
    }
    scores = {split: metrics["primary"] for split, metrics in result.scores.items()}
    if task.out_of_domain is not None:
        scores[task.out_of_domain] = evaluate(folder, task.out_of_domain)["primary"]
    student = result.record.student
    return {
        "score": scores["dev"],
        "scores": scores,
        "layers": student.layers if student else None,
        "parameters": student.parameters if student else None,
        "epochs": recipe.epochs,
        "lr": recipe.lr,
        "batch_size": recipe.batch_size,
        **seconds,
    }


def fingerprint(task: str) -> str:
    """Changes when the rows of the task, its tokens or the settings that train on it do."""
    shape = str(pocket.teacher_config(1))
    digest = hashlib.sha256(repr((pocket.RECOMMENDED[task], shape)).encode())
    splits = pocket.load(task)
    first = [splits["dev"][0][column] for column in get_task(task).text_columns]
    digest.update(repr(pocket.tokenizer()(*first)["input_ids"]).encode())
    for split in sorted(splits):
        digest.update(repr(sorted(splits[split].to_dict().items())).encode())
    return digest.hexdigest()[:16]


def measure(name: str, work: Path) -> dict[str, Any]:
    """Everything about one task."""
    task, splits = load_task(name, "pocket")
    train, dev = splits["train"], splits["dev"]
    settings = pocket.RECOMMENDED[name]
    return {
        "fingerprint": fingerprint(name),
        "metric": task.primary,
        "examples": {split: len(rows) for split, rows in splits.items()},
        "majority": majority(task, train, dev),
        "bag_of_words": bag_of_words(task, train, dev),
        "two_layers_alone": network(
            task, work, layers=SHALLOW, lr=settings.student.lr, epochs=settings.teacher.epochs
        ),
        "teacher": network(task, work, layers=None),
        "versions": versions(),
        "hardware": hardware(),
    }


def show(records: dict[str, Any], console: Console) -> None:
    """One table of all that is recorded."""
    table = Table(title="Pocket GLUE: primary dev score, 0 to 100")
    for heading in ("task", "train", *(row.replace("_", " ") for row in ROWS), "seconds", "cpu"):
        table.add_column(heading, justify="left" if heading == "task" else "right")
    for name in (name for name in TASKS if name in records):
        record = records[name]
        scores = [f"{record[row]['score']:.1f}" for row in ROWS]
        times = [f"{record['teacher'][f'{kind}_seconds']:.0f}" for kind in ("wall", "cpu")]
        table.add_row(name, str(record["examples"]["train"]), *scores, *times)
    console.print(table)


def main() -> None:
    """One task after the other; the record is written after each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--work", type=Path, default=Path("runs/pocket_glue"))
    parser.add_argument("--again", action="store_true", help="run what is recorded, too")
    args = parser.parse_args()
    console = Console()
    for name in args.tasks:
        records = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        known = records.get(name, {}).get("fingerprint")
        if args.again or known != fingerprint(name):
            console.print(f"[bold]{name}[/]")
            measured = measure(name, args.work)
            # Read again: another process may have written its task meanwhile.
            records = json.loads(RECORD.read_text()) if RECORD.exists() else {}
            write_whole(RECORD, json.dumps({**records, name: measured}, indent=1) + "\n")
    if RECORD.exists():
        show(json.loads(RECORD.read_text()), console)


if __name__ == "__main__":
    main()
