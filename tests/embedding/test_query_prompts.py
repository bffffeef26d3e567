"""Prompts of queries and of passages: read, trained with, shipped, and scored as sentence-transformers does."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny_embedders as tiny
import torch
from transformers import BertForSequenceClassification

import tiny_runs
from limbeck import predict
from limbeck.cards import CardSettings
from limbeck.cards.card import render_card
from limbeck.embedding import EmbeddingModules, TextPrompts
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.scoring import evaluate
from limbeck.support.errors import LimbeckError
from limbeck.tasks.retrieval import RETRIEVAL_METRICS

QUERY, PASSAGE = "good bad ", "very slow plot "
TRIPLETS = [("a film", "the end", "slow"), ("good plot", "long film", "bad end")] * 4


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """An encoder that knows of no prompts, and a teacher that has them, under the older name of a passage's."""
    folder = tmp_path_factory.mktemp("asked")
    tiny.write_beir(folder / "set")
    tiny.write_pairs(folder / "pairs.tsv")
    names = ("query", "positive", "negative")
    rows = [json.dumps(dict(zip(names, row, strict=True))) for row in TRIPLETS]
    (folder / "triplets.jsonl").write_text("\n".join(rows), encoding="utf-8")
    theirs = tiny.sentence_transformer(tiny.encoder(folder / "plain", layers=2))
    theirs.prompts = {"query": QUERY, "passage": PASSAGE}
    theirs.save(str(folder / "teacher"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        BertForSequenceClassification(tiny.config(2, num_labels=1)).save_pretrained(
            folder / "cross"
        )
    tiny_runs.tokenizer().save_pretrained(folder / "cross")
    return folder


def recipe(place, method="embedding-contrast", **given):
    paths = {"teacher": "teacher", "data": "triplets.jsonl", "dev": "set"}
    paths |= {
        key: given.pop(key) for key in ("teacher", "data", "dev", "student.init") if key in given
    }
    usual = {"max_length": 16, "max_steps": 1, "batch_size": 6}
    usual |= {"student.layers": 1} if "student.init" not in paths else {}
    return Recipe.load(
        method,
        kind="embedding",
        **{key: str(place / name) for key, name in paths.items()},
        **usual,
        **given,
    )


def words_read(prepared):
    """The texts of the first three training examples, as the tokens say."""
    rows = prepared.stages[-1].rows.encoded
    return [
        prepared.tokenizer.decode(rows[place]["input_ids"], skip_special_tokens=True)
        for place in range(3)
    ]


OWN = {"embedding.query_prompt": "long ", "embedding.passage_prompt": "the bad "}


@pytest.mark.parametrize(("given", "query", "passage"), [
    ({}, QUERY, PASSAGE),
    ({"teacher": "plain"} | OWN, "long ", "the bad "),
    ({"embedding.query_prompt": "passage"}, PASSAGE, PASSAGE),
    ({"embedding.query_prompt": ""}, "", PASSAGE),
    ({"embedding.prompt": "very "}, "very ", "very "),
    ({"embedding.prompt": "very ", "embedding.passage_prompt": ""}, "very ", ""),
    ({"teacher": "cross", "student.init": "teacher", "method": "embedding-margin"}, QUERY, PASSAGE),
])  # fmt: skip
def test_queries_and_passages_are_read_with_their_own(given, query, passage, place):
    prepared = prepare(recipe(place, **given))
    own = [query, passage, passage]
    assert words_read(prepared) == [a + b for a, b in zip(own, TRIPLETS[0], strict=True)]


@pytest.mark.parametrize(
    "given", [pytest.param({}, marks=pytest.mark.slow), {"teacher": "plain"} | OWN]
)
@pytest.mark.slow
def test_sentence_transformers_finds_as_much_in_the_shipped_folder(given, place, tmp_path):
    made = distill(recipe(place, **given), out=tmp_path / "run", report=False)
    theirs = tiny.found_by_sentence_transformers(made.path / "student", place / "set")
    ours = made.scores["dev"]
    for name in RETRIEVAL_METRICS:
        assert ours[name] == pytest.approx(theirs[name], abs=1e-3)
    assert evaluate(made.path) == pytest.approx(ours)
    student = tiny.sentence_transformer(made.path / "student")
    query, passage = (QUERY, PASSAGE) if not given else OWN.values()
    for text, found in ((query, student.encode_query), (passage, student.encode_document)):
        np.testing.assert_array_equal(found(["film"]), student.encode([text + "film"]))
    assert student.default_prompt_name is None
    assert "encode_query(" in render_card(made.path, CardSettings())


@pytest.mark.parametrize("prompt", ["sentence", "query", "passage"])
def test_predicted_embeddings_have_the_prompt_that_is_asked_for(prompt, place):
    texts = tiny.sentences(5)
    rows = predict(place / "teacher", texts, output="embeddings", prompt=prompt)
    named = {} if prompt == "sentence" else {"prompt_name": prompt}
    theirs = tiny.sentence_transformer(place / "teacher").encode(texts, **named)
    np.testing.assert_allclose([row["embedding"] for row in rows], theirs, atol=1e-5)


@pytest.mark.parametrize(("model", "output", "prompt", "message"), [
    ("teacher", "embeddings", "document", "unknown prompt 'document'(.|\n)*sentence, query, passage"),
    ("cross", "labels", "query", "only embeddings of embedding models have prompts"),
    ("cross", "embeddings", "query", "only embeddings of embedding models"),
])  # fmt: skip
def test_prompts_that_no_model_has_are_refused(model, output, prompt, message, place):
    with pytest.raises(LimbeckError, match=message):
        predict(place / model, [{"text": "film"}], output=output, prompt=prompt)


@pytest.mark.slow
def test_scored_pairs_are_sentences(place, tmp_path):
    made = distill(recipe(place, dev="pairs.tsv"), out=tmp_path / "run", report=False)
    student = tiny.sentence_transformer(made.path / "student")
    first, second, _ = zip(*tiny.pairs(), strict=True)
    sides = [student.encode([*texts], normalize_embeddings=True) for texts in (first, second)]
    kept = json.loads((made.path / "predictions.json").read_text("utf-8"))["dev"]
    np.testing.assert_allclose(kept["prediction"], (sides[0] * sides[1]).sum(1), atol=1e-5)


@pytest.mark.parametrize(("named", "default", "expected"), [
    ({}, None, ("", "", "")),
    ({"a": "x "}, "a", ("x ", "x ", "x ")),
    # As release 5 and later write a folder that has none for them: no falling back, as theirs do not.
    ({"query": "", "document": "", "a": "x "}, "a", ("x ", "", "")),
    ({"query": "q ", "document": "", "passage": "p "}, None, ("", "q ", "p ")),
    ({"document": "d ", "passage": "p "}, None, ("", "", "d ")),
])  # fmt: skip
def test_names_of_prompts(named, default, expected):
    assert EmbeddingModules(prompts=named, default_prompt=default).text_prompts == expected


@pytest.mark.parametrize(
    "known", [{}, {"query": "q ", "passage": "p ", "corpus": "c ", "default": "d "}]
)
@pytest.mark.parametrize(
    "prompts",
    [("", "", ""), ("q ", "x ", ""), ("s ", "", "y "), ("c ", "c ", "c "), ("", "x ", "y ")],
)
def test_what_is_written_is_read_again(known, prompts):
    written = EmbeddingModules(prompts=known).prompted(TextPrompts(*prompts))
    assert written.text_prompts == prompts
    # Theirs look up these two names, and the default's.
    assert (written.prompts["query"], written.prompts["document"]) == prompts[1:]


def test_words_that_name_no_prompt_are_refused_together(place):
    with pytest.raises(LimbeckError) as refused:
        prepare(
            recipe(place, **{"embedding.prompt": "what", "embedding.passage_prompt": "Passage"})
        )
    assert [problem.message for problem in refused.value.problems] == [
        f"embedding.{key}: the model has no prompt {name!r} (it has passage, query)"
        for key, name in (("prompt", "what"), ("passage_prompt", "Passage"))
    ]
