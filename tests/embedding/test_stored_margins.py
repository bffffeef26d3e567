"""Students of a teacher's margins: triplets with a difference of two scores each, and no teacher."""

from __future__ import annotations

import csv
import json
import warnings

import numpy as np
import pytest
import tiny_embedders as tiny
import torch
from transformers import BertForSequenceClassification

import tiny_runs
from limbeck.activations import Request
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.support.errors import LimbeckError


@pytest.fixture(scope="module")
def triplets():
    """Eight queries with a positive and two negatives, a triplet each, and scores that nobody is told."""
    generator, rows = np.random.default_rng(3), []
    columns = [tiny.sentences(8, seed) for seed in (11, 12, 13, 14)]
    for number, (query, positive, *negatives) in enumerate(zip(*columns, strict=True)):
        query = f"{query} {'good ' * number}".strip()
        scores = dict(zip((positive, *negatives), [5.0, *generator.normal(0, 2, 2)], strict=True))
        rows += [
            {"query": query, "positive": positive, "negative": one, "score": scores[positive] - scores[one]}
            for one in negatives
        ]  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def place(tmp_path_factory, triplets):
    folder = tmp_path_factory.mktemp("margins")
    tiny.write_pairs(folder / "pairs.tsv")
    tiny.encoder(folder / "encoder", layers=2)
    write(folder / "margins.csv", triplets)
    (folder / "data").mkdir()
    write(folder / "data/train.csv", triplets)
    judged = [{"query": row["query"], "passages": [row["positive"], row["negative"]], "labels": [1, 0]}
              for row in triplets[::2]]  # fmt: skip
    (folder / "data/dev.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in judged))
    # Without dropout, so that another library's model gives the same numbers in training.
    still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        cross = BertForSequenceClassification(tiny.config(2, num_labels=1, **still))
        cross.save_pretrained(folder / "cross")
        cross.bert.save_pretrained(folder / "still")
    for name in ("cross", "still"):
        tiny_runs.tokenizer().save_pretrained(folder / name)
    return folder


def write(path, rows):
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return path


def of_embeddings(place, method="embedding-margin", **given):
    usual = {
        "kind": "embedding", "student.init": str(place / "still"), "student.layers": 2, "batch_size": 12,
        "data": str(place / "margins.csv"), "outputs": [str(place / "margins.csv")], "lr": 1e-3,
        "dev": str(place / "pairs.tsv"), "max_length": 16, "max_steps": 2,
    }  # fmt: skip
    return Recipe.load(method, **(usual | given))


def of_pairs(place, method="margin-mse", **given):
    usual = {
        "kind": "pair-score", "student.init": str(place / "cross"), "student.layers": 2, "batch_size": 12,
        "task": "own", "data": str(place / "data"), "outputs": [str(place / "margins.csv")], "lr": 1e-3,
        "max_length": 24, "max_steps": 2,
    }  # fmt: skip
    return Recipe.load(method, **(usual | given))


KINDS = pytest.mark.parametrize("recipe", [of_embeddings, of_pairs])


@KINDS
def test_differences_within_a_query_are_the_margins_of_the_file(recipe, place, triplets):
    prepared = prepare(recipe(place))
    (stage,) = prepared.stages
    rows = prepared.splits["train"]
    batch = stage.collator(prepared.tokenizer)(
        [stage.rows.encoded[n] for n in range(len(stage.rows.encoded))]
    )
    scores = stage.members[0](batch, Request.of_logits()).logits.squeeze(-1).tolist()
    if recipe is of_pairs:
        told = {
            (row["query"], row["passage"]): score for row, score in zip(rows, scores, strict=True)
        }
        assert len(told) == 24
    else:
        # Query, positive, negative, row by row.
        assert len(scores) == 3 * len(triplets)
        texts = (
            (row["query"], row[name])
            for row in triplets
            for name in ("query", "positive", "negative")
        )
        told = dict(zip(texts, scores, strict=True))  # fmt: skip
    for row in triplets:
        difference = told[row["query"], row["positive"]] - told[row["query"], row["negative"]]
        assert difference == pytest.approx(row["score"], abs=1e-5)


@pytest.mark.parametrize(("recipe", "method", "message"), [
    (of_pairs, "kd-soft", "soft_cross_entropy compares each score, and .* holds margins: differences of two"),
    (of_pairs, "rail-kd-l", "normalized_mse compares each score"),
    (of_embeddings, "embedding-mse", "embedding_mse compares texts one by one, and .* holds margins"),
    (of_embeddings, "embedding-cosine", "embedding_cosine compares texts one by one"),
])  # fmt: skip
def test_terms_that_look_at_each_score_are_refused(recipe, method, message, place, tmp_path):
    with pytest.raises(LimbeckError, match=message):
        distill(recipe(place, method), out=tmp_path / "run")


def test_what_no_margin_ties_together_is_refused_or_left_out(place, triplets, tmp_path):
    apart = {
        "query": triplets[0]["query"],
        "positive": "the end",
        "negative": "very bad film",
        "score": 2.5,
    }
    (tmp_path / "data").mkdir()
    data = write(tmp_path / "data/train.csv", [*triplets, apart])
    (tmp_path / "data/dev.jsonl").write_text((place / "data/dev.jsonl").read_text())
    given = {"data": str(tmp_path / "data"), "outputs": [str(data)]}
    with pytest.raises(
        LimbeckError, match="no margins that tie the query's other passages to 2 of 26"
    ):
        prepare(of_pairs(place, **given))
    prepared = prepare(of_pairs(place, missing_outputs="drop", **given))
    assert len(prepared.splits["train"]) == 24
    # Of embeddings each triplet is compared by itself.
    given["data"] = str(data)
    assert len(prepare(of_embeddings(place, **given)).splits["train"]) == 17


@pytest.mark.slow
@pytest.mark.parametrize("normalized", [False, True])
def test_sentence_transformers_has_the_same_loss_of_embeddings(
    normalized, place, triplets, tmp_path
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, of its own parts
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer import losses, modules
    # All 16 triplets in the first step.
    given = {
        "batch_size": 48,
        "max_steps": 1,
        "precision": "fp32",
        "embedding.normalize": normalized,
    }
    run = distill(of_embeddings(place, **given), out=tmp_path / "run", report=False)
    encoder = modules.Transformer(str(place / "still"))
    parts = [encoder, modules.Pooling(encoder.get_embedding_dimension())]
    model = SentenceTransformer(modules=parts + [modules.Normalize()] * normalized, device="cpu")
    columns = [[row[name] for row in triplets] for name in ("query", "positive", "negative")]
    loss = losses.MarginMSELoss(model)(
        [model.preprocess(texts) for texts in columns],
        torch.tensor([row["score"] for row in triplets]),
    )
    assert run.record.epochs[0].train["margin"] == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.slow
def test_sentence_transformers_has_the_same_loss_of_a_cross_encoder(place, triplets, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import CrossEncoder
        from sentence_transformers.cross_encoder import losses
    # Each query has two triplets, so that the mean over queries is that over triplets.
    given = {"batch_size": 24, "max_steps": 1, "precision": "fp32"}
    run = distill(of_pairs(place, **given), out=tmp_path / "run", report=False)
    model = CrossEncoder(str(place / "cross"), device="cpu")
    columns = [[row[name] for row in triplets] for name in ("query", "positive", "negative")]
    margins = torch.tensor([row["score"] for row in triplets])
    loss = losses.MarginMSELoss(model)(columns, margins)
    assert run.record.epochs[0].train["margin"] == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["listwise-kl", "ranknet", "margin-mse"])
def test_margins_teach_lists_as_whole_scores_do(method, place, triplets, tmp_path):
    lines = [
        {"query": two[0]["query"], "passages": [two[0]["positive"], *(row["negative"] for row in two)],
         "scores": [5.0, *(5.0 - row["score"] for row in two)]}
        for two in zip(triplets[::2], triplets[1::2], strict=True)
    ]  # fmt: skip
    scores = tmp_path / "scores.jsonl"
    scores.write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    found = [
        distill(
            of_pairs(place, method, outputs=[str(path)]), out=tmp_path / path.stem, report=False
        )
        for path in (scores, place / "margins.csv")
    ]
    whole, margins = (run.record.epochs[-1].train["loss"] for run in found)
    assert margins == pytest.approx(whole, rel=1e-5)
    assert [run.record.outputs[0].what for run in found] == ["score", "margin"]
