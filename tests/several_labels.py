"""Rows of several labels, and tiny models that read them, for tests of whole runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import torch
from torch import nn

import tiny_runs as tiny
from limbeck.recipe import Recipe

CLASSES = ("praise", "slow", "short")
SEVERAL = "multi_label_classification"


def labels_of(text: str) -> list[str]:
    """What a text is, by its words: any number of classes."""
    words = text.split()
    found = {"praise": "good" in words, "slow": "slow" in words, "short": len(words) < 4}
    return [name for name in CLASSES if found[name]]


def write_rows(path: Path, count: int) -> Path:
    """JSON lines with a list of labels, or CSV with separated ones."""
    texts = tiny.sentences(count)
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["review", "tags", *CLASSES])
            for text in texts:
                own = labels_of(text)
                writer.writerow([text, "|".join(own), *(int(name in own) for name in CLASSES)])
        return path
    rows = [{"review": text, "tags": labels_of(text)} for text in texts]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def knowing_teacher(layers: int = 4, classes: tuple[str, ...] = CLASSES):
    """A teacher that is right about praise and slow by construction, and about short mostly."""
    model = tiny.knowing_teacher(layers)
    width = tiny.WIDTH
    config = model.config
    config.id2label = dict(enumerate(classes))
    config.label2id = {name: number for number, name in enumerate(classes)}
    config.problem_type = SEVERAL
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        words = model.bert.embeddings.word_embeddings.weight
        words[:, 1] = 0.0
        words[len(tiny.SPECIAL) + tiny.WORDS.index("slow"), 1] = 4.0
        head = nn.Linear(width, 3)
        head.weight.zero_()
        head.weight[classes.index("praise"), 0] = 4.0
        head.weight[classes.index("slow"), 1] = 4.0
        head.bias.copy_(torch.zeros(3))
        head.bias[classes.index("slow")] = -1.0
        head.bias[classes.index("short")] = -1.0
        model.classifier = head
    model.num_labels = config.num_labels
    return model.eval()


def place_of(folder: Path, count: int = 60) -> Path:
    """A folder with a teacher, a student to start from, and rows in two forms."""
    tiny.save(knowing_teacher(), folder / "teacher")
    tiny.save(tiny.bert(3), folder / "start")
    (folder / "rows").mkdir()
    write_rows(folder / "rows" / "train.jsonl", count)
    write_rows(folder / "rows" / "dev.jsonl", 20)
    write_rows(folder / "reviews.jsonl", count)
    write_rows(folder / "reviews.csv", count)
    return folder


def recipe_of(place: Path, method: str = "kd", **changes) -> Recipe:
    """A short run on the place's rows."""
    given = {
        "task": "reviews",
        "data": str(place / "rows"),
        "kind": "multi-label",
        "text_columns": ["review"],
        "label_column": "tags",
        "teacher": None if method == "finetune" else str(place / "teacher"),
        "student.init": str(place / "start") if method == "finetune" else "teacher",
        **({} if method == "finetune" else {"student.layers": 3}),
        "epochs": 2,
        "batch_size": 8,
        "max_length": 24,
        "lr": 1e-2,
        "seed": 3,
    }
    return Recipe.load(method, **(given | changes))
