"""A user's own files of every kind, models to fine-tune and fine-tuned teachers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers as hf

import kind_models as tiny
from limbeck.recipe import Recipe
from limbeck.run import distill

SENTENCES = ["ann saw rome .", "annabelle lee saw the cat .", "the cat saw lee in rome .",
             "lee and ann saw rome .", "in rome the cat saw annabelle ."]  # fmt: skip
TAG_OF = {"ann": "B-PER", "annabelle": "B-PER", "lee": "B-PER", "rome": "B-LOC"}
OWN = {
    "tokens": {"kind": "tokens", "text_columns": ["tokens"], "label_column": "tags"},
    "spans": {"kind": "spans"},
    "masked": {"kind": "masked"},
    "causal-lm": {"kind": "causal-lm"},
    "text": {"kind": "text", "text_columns": ["t"], "label_column": "y"},
}


def rows_of(kind: str, count: int) -> list[dict]:
    texts = [SENTENCES[row % 5] for row in range(count)]
    if kind == "text":
        return [{"t": text, "y": ["the", "and"]["ann " in text]} for text in texts]
    if kind == "tokens":
        words = [text.split() for text in texts]
        return [{"tokens": w, "tags": [TAG_OF.get(x, "O") for x in w]} for w in words]
    return [
        {
            "question": "who ?",
            "context": text,
            "answers": {"text": ["rome"], "answer_start": [text.index("rome")]},
        }
        for text in texts
        if "rome" in text
    ]


def write_rows(kind: str, folder: Path) -> Path:
    """A folder with files of a train and a dev split."""
    for split, count in (("train", 35), ("dev", 5)):
        if kind in ("masked", "causal-lm"):
            lines = [SENTENCES[row % 5] for row in range(count)]
            (folder / f"{split}.txt").write_text("\n\n".join(lines), encoding="utf-8")
        else:
            lines = map(json.dumps, rows_of(kind, count))
            (folder / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """kind → (file, folder of a model to fine-tune)."""
    found = {}
    for kind in OWN:
        folder = tmp_path_factory.mktemp(kind)
        model = tiny.model(kind, layers=3, scale=1.0)
        if kind == "tokens":
            changes = {"id2label": {0: "O", 1: "B-LOC", 2: "B-PER"}, "num_labels": 3}
            config = model.config.from_dict(model.config.to_dict() | changes)
            # Else its weights, and what it learns, are those of whatever tests this process ran before.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model = hf.BertForTokenClassification(config)
        model.save_pretrained(folder / "model")
        tiny.tokenizer().save_pretrained(folder / "model")
        found[kind] = (write_rows(kind, folder), folder / "model")
    return found


def settings_of(place, kind, **changes) -> dict:
    """Recipe settings of a short run on the kind's own files."""
    file, model = place[kind]
    given = {"task": "own", "data": str(file), "student.init": str(model), "epochs": 2,
             "batch_size": 8, "max_length": 24, "lr": 1e-2, "seed": 3, **OWN[kind]}  # fmt: skip
    return given | changes


class Teachers(dict):
    """kind → its fine-tuned teacher's run, made when it is first asked for."""

    def __init__(self, place, factory) -> None:
        super().__init__()
        self.place, self.factory = place, factory

    def __missing__(self, kind: str):
        # Generated words are right only as a whole, which takes longer to learn.
        epochs = 12 if kind == "text" else 8
        recipe = Recipe.load("finetune", **settings_of(self.place, kind, epochs=epochs))
        self[kind] = distill(recipe, out=self.factory.mktemp("runs") / kind, report=False)
        return self[kind]


@pytest.fixture(scope="session")
def teachers(place, tmp_path_factory):
    return Teachers(place, tmp_path_factory)


@pytest.fixture(scope="session")
def settings(place):
    """`settings("tokens", epochs=3)`: recipe settings of a short run."""
    return lambda kind, **changes: settings_of(place, kind, **changes)
