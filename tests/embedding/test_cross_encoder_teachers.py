"""Embedding models that learn from a cross-encoder: its scores of pairs as sentence-transformers has them; refusals."""

from __future__ import annotations

import json

import pytest
import tiny_embedders as tiny
import torch
from safetensors.torch import load_file
from transformers import BertForSequenceClassification

import tiny_runs
from limbeck.activations import Request
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.support.errors import LimbeckError


@pytest.fixture(scope="module")
def rows():
    columns = [tiny.sentences(16, seed) for seed in (1, 2, 3)]
    names = ("query", "positive", "negative")
    return [dict(zip(names, texts, strict=True)) for texts in zip(*columns, strict=True)]


@pytest.fixture(scope="module")
def place(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("crossed")
    tiny.write_pairs(folder / "pairs.tsv")
    tiny.encoder(folder / "encoder", layers=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        cross = BertForSequenceClassification(tiny.config(3, num_labels=1))
    cross.save_pretrained(folder / "cross")
    tiny_runs.tokenizer().save_pretrained(folder / "cross")
    (folder / "triplets.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def recipe(place, method="embedding-margin", **given):
    usual = {
        "kind": "embedding", "teacher": str(place / "cross"), "student.init": str(place / "encoder"),
        "data": str(place / "triplets.jsonl"), "dev": str(place / "pairs.tsv"), "batch_size": 12,
        "epochs": 2, "lr": 1e-3, "max_length": 16,
    }  # fmt: skip
    return Recipe.load(method, **(usual | given))


def test_the_teacher_scores_each_passage_with_its_query(place, rows):
    """As sentence-transformers' own cross-encoder does."""
    from sentence_transformers import CrossEncoder

    prepared = prepare(recipe(place))
    stage = prepared.stages[-1]
    few = [stage.rows.encoded[number] for number in range(12)]
    batch = stage.collator(prepared.tokenizer)(few)
    found = stage.members[0](batch, Request.of_logits()).logits.squeeze(-1)
    pairs = [(row["query"], row[name]) for row in rows[:4] for name in ("positive", "negative")]
    model = CrossEncoder(str(place / "cross"), device="cpu", activation_fn=torch.nn.Identity())
    expected = torch.from_numpy(model.predict(pairs))
    torch.testing.assert_close(found[batch["grade"].isfinite()], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_student(place, tmp_path):
    given = recipe(place, checkpoint_steps=3, **{"objectives.margin.scale": 4})
    whole = distill(given, out=tmp_path / "straight", report=False)
    resumed = tiny_runs.continued(given, tmp_path / "killed", 6)
    weights = [load_file(run.path / "student" / "model.safetensors") for run in (whole, resumed)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    losses = [[entry.train["margin"] for entry in run.record.epochs] for run in (whole, resumed)]
    assert losses[0] == losses[1] and losses[0][1] < losses[0][0]
    assert tiny.sentence_transformer(whole.path / "student").encode(["good film"]).shape == (1, 16)


@pytest.mark.parametrize(("method", "changes", "message"), [
    ("embedding-mse", {}, "the teacher gives none"),
    ("kd-soft", {}, "the teacher gives none"),
    ("embedding-contrast", {}, "the teacher gives none"),
    ("rail-kd-l", {"objectives.soft": None}, "nothing inside it is of the student's texts"),
    ("embedding-margin", {"student.init": "teacher"}, "a cross-encoder, which gives no embedding"),
])  # fmt: skip
def test_what_a_cross_encoder_cannot_teach_is_refused(method, changes, message, place, tmp_path):
    with pytest.raises(LimbeckError, match=message):
        distill(recipe(place, method, **changes), out=tmp_path / "run")
