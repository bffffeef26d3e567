"""Embedding models that learn from a cross-encoder's stored scores, without the cross-encoder."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny_embedders as tiny
import torch
from safetensors.torch import load_file
from transformers import BertForSequenceClassification

import tiny_runs
from limbeck import label
from limbeck.activations import Request
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.support.errors import LimbeckError


def lines(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def scored():
    """Queries with two to five passages, and a score of each pair."""
    generator, rows = np.random.default_rng(5), []
    columns = [tiny.sentences(12, seed) for seed in range(1, 7)]
    for number, (query, *found) in enumerate(zip(*columns, strict=True)):
        passages = list(dict.fromkeys(found))[: 2 + number % 4]
        scores = generator.normal(0, 3, len(passages)).round(3).tolist()
        rows.append(
            {"query": f"{query} {'good ' * number}".strip(), "passages": passages, "scores": scores}
        )
    return rows


@pytest.fixture(scope="module")
def place(tmp_path_factory, scored):
    folder = tmp_path_factory.mktemp("scored")
    tiny.write_pairs(folder / "pairs.tsv")
    tiny.encoder(folder / "encoder", layers=2)
    lines(folder / "scored.jsonl", scored)
    judged = [row | {"labels": [1] + [0] * (len(row["passages"]) - 1)} for row in scored]
    lines(folder / "judged.jsonl", judged)
    pairs = [pair for row in scored for pair in pairs_of(row)]
    head = "query,passage,score\n"
    (folder / "scored.csv").write_text(head + "".join(f"{q},{p},{s}\n" for q, p, s in pairs))
    (folder / "few.csv").write_text(head + "".join(f"{q},{p},{s}\n" for q, p, s in pairs[1:]))
    return folder


def pairs_of(row):
    return [(row["query"], *two) for two in zip(row["passages"], row["scores"], strict=True)]


def recipe(place, method="listwise-kl", data="scored.jsonl", stored="scored.jsonl", **given):
    usual = {
        "kind": "embedding", "student.init": str(place / "encoder"), "student.layers": 1,
        "data": str(place / data), "dev": str(place / "pairs.tsv"), "batch_size": 12, "lr": 1e-3,
        "max_length": 16, "max_steps": 2,
    }  # fmt: skip
    if "teacher" not in given:
        usual["outputs"] = [str(place / stored)]
    return Recipe.load(method, **(usual | given))


@pytest.mark.parametrize(("data", "outputs", "given"), [
    ("scored.jsonl", "scored.jsonl", {"embedding.query_prompt": "very "}),
    ("judged.jsonl", "scored.csv", {}),
    ("scored.csv", "judged.jsonl", {}),
])  # fmt: skip
def test_every_passage_has_the_score_of_its_pair(data, outputs, given, place, scored):
    expected = {(q, p): s for row in scored for q, p, s in pairs_of(row)}
    prepared = prepare(recipe(place, "ranknet", data, outputs, **given))
    stage = prepared.stages[-1]
    texts = [text for row in scored for text in (row["query"], *row["passages"])]
    queries = [row["query"] for row in scored for _ in (0, *row["passages"])]
    assert len(stage.rows.encoded) == len(texts)
    order = np.random.default_rng(0).permutation(len(texts))
    batch = stage.collator(prepared.tokenizer)([stage.rows.encoded[int(n)] for n in order])
    found = stage.members[0](batch, Request.of_logits()).logits.squeeze(-1).tolist()
    assert found == pytest.approx([expected.get((queries[n], texts[n]), 0.0) for n in order])
    assert stage.members[0].model.config.about["file"] == outputs


@pytest.mark.slow
def test_a_student_learns_from_scores_of_some_candidates_in_each_epoch(place, tmp_path):
    given = {"epochs": 2, "max_steps": None, "candidates": 2, "objectives.list.scale": 5}
    run = distill(recipe(place, **given), out=tmp_path / "run", report=False)
    first, second = (entry.train["list"] for entry in run.record.epochs)
    assert np.isfinite(first) and first != second
    assert run.record.outputs[0].what == "score" and run.record.teacher is None
    assert tiny.sentence_transformer(run.path / "student").encode(["good film"]).shape == (1, 16)


@pytest.mark.slow
def test_a_store_teaches_as_the_cross_encoder_itself_does(place, tmp_path):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        cross = BertForSequenceClassification(tiny.config(3, num_labels=1))
    cross.save_pretrained(tmp_path / "cross")
    tiny_runs.tokenizer().save_pretrained(tmp_path / "cross")
    label(tmp_path / "cross", place / "judged.jsonl", out=tmp_path / "store", max_length=16)
    runs = []
    for name, whose in (
        ("live", {"teacher": str(tmp_path / "cross")}),
        ("stored", {"outputs": [str(tmp_path / "store")]}),
    ):
        one = recipe(
            place, "embedding-margin", "judged.jsonl", max_steps=6, precision="fp32", **whose
        )
        runs.append(distill(one, out=tmp_path / name, report=False))
    live, stored = (load_file(run.path / "student/model.safetensors") for run in runs)
    for name, weight in live.items():
        torch.testing.assert_close(stored[name], weight, atol=1e-4, rtol=1e-4)


def test_rows_of_which_a_score_is_missing_are_dropped_whole_or_refused(place, scored):
    with pytest.raises(LimbeckError, match="knows nothing of 1 of 12 training rows"):
        prepare(recipe(place, stored="few.csv"))
    prepared = prepare(recipe(place, stored="few.csv", missing_outputs="drop"))
    assert prepared.without_outputs == 1
    assert prepared.splits["train"]["sentence1"][:] == [row["query"] for row in scored[1:]]


@pytest.mark.parametrize(("given", "message"), [
    ({"method": "embedding-mse"}, "objectives.target: embedding_mse compares texts one by one"),
    ({"method": "rail-kd-l"}, "objectives.rail: normalized_mse compares texts one by one"),
    ({"method": "embedding-margin"}, "objectives.margin: margin_mse needs to know the relevant passages"),
    ({"objectives.contrast": {"compare": "pair_contrast"}}, "objectives.contrast: pair_contrast needs to know"),
    ({"candidates": 12}, "12 and their query, and batches have 12 rows"),
])  # fmt: skip
def test_what_scores_cannot_teach_is_refused(given, message, place, tmp_path):
    with pytest.raises(LimbeckError) as refused:
        distill(recipe(place, **given), out=tmp_path / "run")
    assert any(message in problem.message for problem in refused.value.problems)


def test_all_pairs_need_no_labels(place):
    prepared = prepare(recipe(place, "embedding-margin", **{"objectives.margin.pairs": "all"}))
    stage = prepared.stages[-1]
    batch = stage.collator(prepared.tokenizer)([stage.rows.encoded[n] for n in range(9)])
    assert batch["grade"].nan_to_num(9).tolist() == [9, -1, -1, 9, -1, -1, -1, 9, -1]
