"""Stores of log-odds teach: rerankers by lists and margins, regressions, and classes that stand beside each other."""

from __future__ import annotations

import json

import pytest

import several_labels as several
import tiny_runs as tiny
from limbeck import label
from limbeck.labelling.language_models.prompt import Prompt
from limbeck.recipe import Recipe
from limbeck.run import distill
from tiny_language_models import save_language_model

SCORE = {"score": ["bad", "good"], "template": "{text}\nIs it good?"}
ASKED = {
    "pair-score": Prompt(**SCORE),
    "sentence": Prompt(**SCORE),
    "multi-label": Prompt(
        score=["bad", "good"],
        template="{text}\n{question}",
        questions={name: f"Is it {name}?" for name in several.CLASSES},
    ),
}


def rows_of(kind: str, folder) -> dict:
    """A file of rows, and how a recipe and `label` read it."""
    path = folder / "rows.jsonl"
    texts = list(dict.fromkeys(tiny.sentences(60)))
    if kind == "pair-score":
        lines = [
            {"query": text, "passages": texts[at : at + 3], "labels": [1, 0, 0]}
            for at, text in enumerate(texts[:20])
        ]
    else:
        own = several.labels_of if kind == "multi-label" else lambda text: len(text) / 7
        lines = [{"review": text, "verdict": own(text)} for text in texts]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    columns = {"text_columns": ["review"], "label_column": "verdict"}
    return {"data": str(path)} | ({} if kind == "pair-score" else columns)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("pair-score", "listwise-kl"),
        ("pair-score", "margin-mse"),
        ("sentence", "kd-soft"),
        ("multi-label", "kd-soft"),
    ],
)
def test_a_store_of_log_odds_teaches(kind, method, tmp_path) -> None:
    rows = rows_of(kind, tmp_path)
    teacher = save_language_model(tmp_path / "teacher", "qwen3")
    columns = {"text_columns": rows["text_columns"]} if "text_columns" in rows else {}
    store = label(teacher, rows["data"], prompt=ASKED[kind], out=tmp_path / "store", **columns)
    assert store.kind == ("multi-label" if kind == "multi-label" else "sentence")
    assert store.classes == (several.CLASSES if kind == "multi-label" else ())
    tiny.save(tiny.bert(2), tmp_path / "start")
    given = {"kind": kind, "task": "own", "epochs": 1, "batch_size": 12, "max_length": 24, "lr": 5e-3,
             "outputs": [str(tmp_path / "store")], "student.init": str(tmp_path / "start"),
             "student.layers": 2}  # fmt: skip
    run = distill(Recipe.load(method, **rows | given), out=tmp_path / "run", report=False)
    assert run.scores["dev"]
