"""Whole runs of embedding models on triplets: killed and continued, beside other terms, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny_embedders as tiny
import torch
from safetensors.torch import load_file

import tiny_runs
from limbeck.objectives import ModelShape, Shape
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
from limbeck.tasks import EMBEDDING


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuples")
    tiny.write_pairs(folder / "pairs.tsv")
    tiny.write_sentences(folder / "sentences.txt")
    tiny.encoder(folder / "teacher")
    columns = [tiny.sentences(24, seed) for seed in (1, 2, 3)]
    names = ("anchor", "positive", "negative")
    rows = [dict(zip(names, texts, strict=True)) for texts in zip(*columns, strict=True)]
    (folder / "triplets.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def recipe(place):
    def load(method, **given):
        usual = {
            "kind": "embedding", "teacher": str(place / "teacher"), "data": str(place / "triplets.jsonl"),
            "dev": str(place / "pairs.tsv"), "student.layers": 2, "batch_size": 12, "epochs": 2, "lr": 1e-3,
            "max_length": 16,
        }  # fmt: skip
        return Recipe.load(method, **(usual | given))

    return load


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_student(recipe, tmp_path):
    both = {"objectives.margin": {"compare": "margin_mse"}}
    given = recipe("embedding-contrast", checkpoint_steps=3, **both)
    whole = distill(given, out=tmp_path / "straight", report=False)
    resumed = tiny_runs.continued(given, tmp_path / "killed", 9)
    weights = [load_file(run.path / "student" / "model.safetensors") for run in (whole, resumed)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    losses = [[entry.train for entry in run.record.epochs] for run in (whole, resumed)]
    assert losses[0] == losses[1] and whole.scores == resumed.scores
    assert losses[0][1]["loss"] < losses[0][0]["loss"]
    assert tiny.sentence_transformer(whole.path / "student").encode(["good film"]).shape == (1, 16)


def test_methods_of_rerankers_teach_embedding_models(recipe, tmp_path):
    more = {"objectives.contrast": {"compare": "pair_contrast", "dimensions": [4]}}
    given = recipe("listwise-kl", max_steps=2, **more, **{"objectives.list.scale": 5})
    run = distill(given, out=tmp_path / "run", report=False)
    assert all(np.isfinite(value) for value in run.record.epochs[0].train.values())
    assert run.record.recipe["objectives"]["list"]["scale"] == 5


@pytest.mark.parametrize(("method", "changes", "message"), [
    ("embedding-contrast", {"data": "sentences.txt"}, "objectives.contrast: pair_contrast compares texts that belong"),
    ("embedding-margin", {"data": "sentences.txt"}, "objectives.margin: margin_mse compares texts that belong"),
    ("embedding-contrast", {"candidates": 12}, "candidates: 12 and their query"),
    ("embedding-mse", {"candidates": 2, "data": "sentences.txt"}, "candidates: 2, and rows of kind embedding are no"),
    ("embedding-margin", {"objectives.margin.scale": 0}, "scale"),
])  # fmt: skip
def test_what_cannot_be_is_refused_before_the_first_step(
    method, changes, message, recipe, place, tmp_path
):
    changes = {k: str(place / v) if k == "data" else v for k, v in changes.items()}
    with pytest.raises(LimbeckError, match=message):
        distill(recipe(method, **changes), out=tmp_path / "run")


def test_a_teacher_of_classes_scores_no_candidates():
    shape = Shape(ModelShape(2, 8, 2, embedding=8), ModelShape(4, 8, 2, labels=3), kind=EMBEDDING)
    term = Recipe.load("embedding-margin", teacher="t").objectives["margin"]
    with pytest.raises(LimbeckError, match="neither embeddings nor one score, but 3 numbers"):
        term.build(shape, "objectives.margin")
