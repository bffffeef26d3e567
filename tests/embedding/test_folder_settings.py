"""What a sentence-transformers folder says beside its modules: tokens of a text, similarity, letters' case."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import tiny_embedders as tiny
import torch

from limbeck import predict
from limbeck.embedding import modules_of
from limbeck.embedding.embedder import embedding_config
from limbeck.recipe import Recipe
from limbeck.run.rows import embedding_kind
from limbeck.scoring import evaluate
from limbeck.scoring.scored_model import longest_of
from limbeck.students import build_student, load_model, read_processor
from limbeck.support.errors import LimbeckError
from limbeck.tasks import EMBEDDING, TEXT_READING

WORDS = ["good", "film", "bad", "plot", "the", "end"]


def long_pairs(path, count=8):
    """Pairs that differ only behind their first five tokens, and in case."""
    rows = []
    for n in range(count):
        first = [*WORDS[:4], *(WORDS[(n + k) % 6] for k in range(10))]
        second = [*WORDS[:4], *(WORDS[(n * k) % 6] for k in range(12))]
        rows.append((" ".join(first), " ".join(second).upper(), n % 4))
    path.write_text(
        "sentence1\tsentence2\tscore\n" + "".join(f"{a}\t{b}\t{c}\n" for a, b, c in rows)
    )
    return rows


def changed(folder, file, **settings):
    content = json.loads((folder / file).read_text("utf-8"))
    (folder / file).write_text(json.dumps(content | settings), "utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Folders of a model without normalisation: as it is, and of 8 tokens by inner product in lower case."""
    place = tmp_path_factory.mktemp("settings")
    model = tiny.embedder(layers=2)
    content = model.config.sentence_embedding | {"normalize": False}
    model.config.sentence_embedding = content
    from limbeck.embedding import SENTENCE_EMBEDDERS

    unscaled = SENTENCE_EMBEDDERS.from_config(model.config)
    unscaled.load_state_dict(model.state_dict())
    for name in ("plain", "says"):
        unscaled.save_pretrained(place / name)
        tiny.tiny.tokenizer().save_pretrained(place / name)
    changed(place / "says", "sentence_bert_config.json", max_seq_length=8, do_lower_case=True)
    changed(place / "says", "config_sentence_transformers.json", similarity_fn_name="dot")
    long_pairs(place / "pairs.tsv")
    tiny.write_beir(place / "set")
    return place


def theirs(folder, pairs):
    """Correlations by sentence-transformers' own evaluator, and its own similarity."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers.sentence_transformer.evaluation import (
            EmbeddingSimilarityEvaluator,
        )
    model = tiny.sentence_transformer(folder)
    first, second, right = zip(*pairs, strict=True)
    found = EmbeddingSimilarityEvaluator(first, second, right)(model)
    return {
        name: 100 * found[f"{name}_{model.similarity_fn_name}"] for name in ("spearman", "pearson")
    }


@pytest.mark.parametrize("name", ["plain", "says"])
def test_pairs_are_scored_as_sentence_transformers_scores_them(name, made, tmp_path):
    pairs = long_pairs(tmp_path / "pairs.tsv")
    found = evaluate(made / name, data=str(tmp_path / "pairs.tsv"))
    expected = theirs(made / name, pairs)
    assert found["pearson"] == pytest.approx(expected["pearson"], abs=1e-3)
    # Where texts are cut to the same tokens their similarities are equal but for rounding, and have no order.
    if name == "plain":
        assert found["spearman"] == pytest.approx(expected["spearman"], abs=1e-3)


def test_what_the_folder_says_changes_the_scores(made):
    found = [
        evaluate(made / name, data=str(made / "pairs.tsv"))["pearson"] for name in ("plain", "says")
    ]
    assert abs(found[0] - found[1]) > 1


@pytest.mark.parametrize(("name", "function"), [("plain", "cosine"), ("says", "dot")])
def test_retrieval_too(name, function, made):
    found = evaluate(made / name, data=str(made / "set"))
    expected = tiny.found_by_sentence_transformers(made / name, made / "set", function)
    for metric in ("ndcg@10", "mrr@10", "recall@10"):
        assert found[metric] == pytest.approx(expected[metric], abs=1e-3)


@pytest.mark.parametrize("name", ["plain", "says"])
def test_predicted_embeddings_are_those_of_encode(name, made, tmp_path):
    texts = [text for row in long_pairs(tmp_path / "pairs.tsv") for text in row[:2]]
    (tmp_path / "rows.txt").write_text("\n".join(texts))
    predict(str(made / name), tmp_path / "rows.txt", to=tmp_path / "o.jsonl", output="embeddings")
    lines = (tmp_path / "o.jsonl").read_text("utf-8").splitlines()
    given = [json.loads(line)["embedding"] for line in lines]
    np.testing.assert_allclose(
        given, tiny.sentence_transformer(made / name).encode(texts), atol=1e-5
    )


def test_a_student_is_shipped_with_what_its_teacher_says(made, tmp_path):
    model = load_model(str(made / "says"), auto=EMBEDDING.auto)
    assert longest_of(model, read_processor(made / "says", TEXT_READING)) == 8
    student = build_student(model, layers=1, kind=EMBEDDING.of_model(model.config))
    student.save_pretrained(tmp_path / "student")
    read_processor(made / "says", TEXT_READING).save_pretrained(tmp_path / "student")
    shipped = tiny.sentence_transformer(tmp_path / "student")
    assert (shipped.max_seq_length, shipped.similarity_fn_name) == (8, "dot")
    texts = ["Good FILM the end bad plot good film bad plot", "good film"]
    ours = TEXT_READING.load(str(tmp_path / "student"))
    batch = ours(texts, truncation=True, max_length=8, padding=True, return_tensors="pt")
    with torch.no_grad():
        own = student.eval()(**batch).logits
    np.testing.assert_allclose(shipped.encode(texts), own, atol=1e-5)
    # Read again, the tokenizer is the same: nothing is put before it twice.
    once = read_processor(made / "says", TEXT_READING)
    assert TEXT_READING.describe(ours) == TEXT_READING.describe(once)


def recipe(made, teacher, **given):
    return Recipe.load(
        "embedding-mse", teacher=str(made / teacher), data="sentences.txt", dev=str(made / "pairs.tsv"),
        **{"student.layers": 1, "max_length": 16} | given,
    )  # fmt: skip


@pytest.mark.parametrize(("teacher", "given", "tokens", "similarity"), [
    ("says", {}, 8, "dot"),
    ("says", {"embedding.max_tokens": 12, "embedding.similarity": "cosine"}, 12, "cosine"),
    ("plain", {}, 24, "cosine"),  # it says nothing but its positions
    ("bare", {}, 16, "cosine"),
    ("bare", {"embedding.normalize": False}, 16, "dot"),
    ("bare", {"embedding.normalize": False, "embedding.similarity": "cosine"}, 16, "cosine"),
])  # fmt: skip
def test_the_runs_numbers(teacher, given, tokens, similarity, made):
    if teacher == "bare" and not (made / "bare").exists():
        tiny.encoder(made / "bare", layers=2)
    kind = embedding_kind(EMBEDDING, recipe(made, teacher, **given))
    assert (kind.scored_length(16), kind.similarity) == (tokens, similarity)
    config = kind.student_config(embedding_config(str(made / teacher)))
    shipped = modules_of(config)
    assert (shipped.max_tokens, shipped.similarity) == (tokens, similarity)


@pytest.mark.parametrize(("given", "message"), [
    ({"embedding.max_tokens": 25}, "beyond the 24 positions"),
    ({"embedding.max_tokens": 20, "pad_to": 16}, "pad_to 16(.|\n)*embedding.max_tokens=16"),
])  # fmt: skip
def test_more_tokens_than_there_are_is_refused(given, message, made):
    with pytest.raises(LimbeckError, match=message):
        embedding_kind(EMBEDDING, recipe(made, "says", **given))


def test_another_similarity_is_refused(made, tmp_path):
    model = load_model(str(made / "says"), auto=EMBEDDING.auto)
    model.save_pretrained(tmp_path)
    changed(tmp_path, "config_sentence_transformers.json", similarity_fn_name="euclidean")
    with pytest.raises(LimbeckError, match=r"unknown similarity 'euclidean'(.|\n)*cosine, dot"):
        embedding_config(str(tmp_path))
