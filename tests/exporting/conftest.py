"""Tiny models of every task type with their rows, and what each is exported as; a graph is traced once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from export_rows import PIECES, SENTENCES, TAGS, tokenizer
from filelock import FileLock
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)

import image_sets as sets
import tiny_runs as tiny
from limbeck.exporting import onnx_graph
from limbeck.exporting.export_model import export
from limbeck.exporting.onnx_graph import write_onnx

HEADS = {
    "regression": BertForSequenceClassification,
    "tokens": BertForTokenClassification,
    "spans": BertForQuestionAnswering,
    "masked": BertForMaskedLM,
}


def model_of(kind: str):
    """A random model of a kind, whose predictions differ from row to row."""
    labels = {"tokens": TAGS, "regression": {0: "LABEL_0"}}.get(kind, {0: "a", 1: "b"})
    config = BertConfig(
        vocab_size=len(PIECES), hidden_size=16, num_attention_heads=2, intermediate_size=24,
        num_hidden_layers=1, max_position_embeddings=64, initializer_range=0.3,
        id2label=labels, label2id={name: number for number, name in labels.items()},
        problem_type="regression" if kind == "regression" else None,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        return HEADS[kind](config).eval()


def rows_of(kind: str) -> list[dict]:
    tag_of = {"rome": "B-LOC", "ann": "B-PER", "annabelle": "B-PER", "lee": "B-PER"}
    if kind == "regression":
        pairs = [(a, b) for a in SENTENCES for b in SENTENCES]
        return [
            {"first": a, "second": b, "score": len(a) / 10 + at / 7}
            for at, (a, b) in enumerate(pairs)
        ]
    if kind == "tokens":
        return [
            {"tokens": text.split(), "tags": [tag_of.get(word, "O") for word in text.split()]}
            for text in SENTENCES
        ]
    return [
        {
            "question": "who ?",
            "context": text,
            "answers": {"text": ["rome"], "answer_start": [text.index("rome")]},
        }
        for text in SENTENCES
        if "rome" in text
    ]


def write_rows(kind: str, folder: Path) -> Path:
    folder.mkdir()
    if kind == "masked":
        for split in ("train", "dev"):
            (folder / f"{split}.txt").write_text("\n\n".join(SENTENCES), encoding="utf-8")
    elif kind == "image":
        sets.write_pictures(folder / "train", {"0": 20, "1": 200}, each=4)
        sets.write_pictures(folder / "dev", {"0": 20, "1": 200}, each=4)
    else:
        lines = [json.dumps(row) for row in rows_of(kind)]
        for split in ("train", "dev"):
            # Twice, for more rows than one to a class.
            (folder / f"{split}.jsonl").write_text("\n".join([*lines, *lines]), encoding="utf-8")
    return folder


def knowing():
    """One layer is enough to be right on every row, as attention carries more to the head."""
    model = tiny.knowing_teacher(1)
    with torch.no_grad():
        model.bert.encoder.layer[0].attention.self.value.weight.mul_(8)
    return model


SETTINGS = {
    "sentence": {"task": "reviews", "text_columns": ["review"], "label_column": "verdict"},
    "regression": {"task": "own", "text_columns": ["first", "second"], "label_column": "score"},
    "tokens": {"task": "own", "text_columns": ["tokens"], "label_column": "tags"},
    "spans": {"task": "own"},
    "masked": {"task": "own"},
    "image": {"task": "own"},
}


class Places(dict):
    """kind → (model's folder, data, settings of `export`), written when first asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def __missing__(self, kind: str):
        folder = self.root / kind
        folder.mkdir()
        if kind == "sentence":
            tiny.save(knowing(), folder / "model")
            data = tiny.write_csv(folder / "reviews.csv", 40)
        elif kind == "image":
            labels = {0: "0", 1: "1"}
            sets.save(sets.vit(1, id2label=labels, label2id={"0": 0, "1": 1}), folder / "model")
            data = write_rows(kind, folder / "rows")
        else:
            model_of(kind).save_pretrained(folder / "model")
            tokenizer().save_pretrained(folder / "model")
            data = write_rows(kind, folder / "rows")
        self[kind] = str(folder / "model"), str(data), SETTINGS[kind]
        return self[kind]


@pytest.fixture(scope="session")
def places(tmp_path_factory) -> Places:
    return Places(tmp_path_factory.mktemp("places"))


@pytest.fixture(scope="session", autouse=True)
def traced_once(tmp_path_factory):
    """A model that was traced before is copied, also by another process: to trace one takes seconds."""
    root = tmp_path_factory.getbasetemp()
    kept = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "graphs"
    kept.mkdir(exist_ok=True)

    def write(model, batch, path, *, fused):
        weights = b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())
        name = hashlib.blake2b(type(model).__name__.encode() + weights).hexdigest()
        copy = kept / f"{name}-{fused}.onnx"
        with FileLock(f"{copy}.lock"):
            if not copy.exists():
                write_onnx(model, batch, path, fused=fused)
                shutil.copyfile(path, copy)
        shutil.copyfile(copy, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_graph, "write_onnx", write)
        yield


@pytest.fixture(scope="session")
def outlier(tmp_path_factory) -> str:
    """A classifier whose table of embeddings holds one huge number, so that int8 loses all others."""
    model = knowing()
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[1, 7] = 2000.0  # of the unknown token
    return str(tiny.save(model, tmp_path_factory.mktemp("outlier") / "model"))


class Exported(dict):
    """kind → the result of its export as fused ONNX."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places

    def __missing__(self, kind: str):
        model, data, settings = self.places[kind]
        self[kind] = export(model, data=data, out=Path(model).parent / "exported", **settings)
        return self[kind]


@pytest.fixture(scope="session")
def exported(places) -> Exported:
    return Exported(places)
