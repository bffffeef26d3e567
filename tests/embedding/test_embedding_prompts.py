"""A prompt before every text: read with, shipped, and scored as sentence-transformers does."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import tiny_embedders as tiny

from limbeck import build_student, predict
from limbeck.embedding import modules_of
from limbeck.embedding.folder import EmbeddingModules, set_modules
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.scoring import evaluate
from limbeck.support.errors import LimbeckError

PROMPT = "very good "


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A teacher that puts a prompt before every text unasked, and knows another."""
    folder = tmp_path_factory.mktemp("prompts")
    tiny.write_sentences(folder / "sentences.txt", 16)
    tiny.write_pairs(folder / "pairs.tsv")
    theirs = tiny.sentence_transformer(tiny.encoder(folder / "plain"))
    theirs.prompts, theirs.default_prompt_name = {"praise": PROMPT, "blame": "very bad "}, "praise"
    theirs.save(str(folder / "teacher"))
    return folder


def run(place, out, **given):
    recipe = Recipe.load(
        "embedding-mse", teacher=str(place / "teacher"), data=str(place / "sentences.txt"),
        dev=str(place / "pairs.tsv"), max_length=16, max_steps=1, **{"student.layers": 2}, **given,
    )  # fmt: skip
    return distill(recipe, out=out, report=False)


@pytest.mark.parametrize(("given", "expected"), [
    ({}, PROMPT), pytest.param({"embedding.prompt": "blame"}, "very bad ", marks=pytest.mark.slow),
    pytest.param({"embedding.prompt": "the "}, "the ", marks=pytest.mark.slow), ({"embedding.prompt": ""}, ""),
])  # fmt: skip
def test_what_is_scored_is_what_sentence_transformers_scores(given, expected, place, tmp_path):
    made = run(place, tmp_path / "run", **given)
    student = tiny.sentence_transformer(made.path / "student")
    name = student.default_prompt_name
    assert ("" if name is None else student.prompts[name]) == expected
    first, second, _ = zip(*tiny.pairs(), strict=True)
    sides = [student.encode([*texts], normalize_embeddings=True) for texts in (first, second)]
    cosines = (sides[0] * sides[1]).sum(1)
    kept = json.loads((made.path / "predictions.json").read_text("utf-8"))["dev"]
    np.testing.assert_allclose(kept["prediction"], cosines, atol=1e-5)
    bare = student.encode([*first], prompt="")
    assert np.allclose(bare, student.encode([*first])) == (expected == "")
    assert evaluate(made.path) == pytest.approx(made.scores["dev"])
    rows = tmp_path / "rows.txt"
    rows.write_text("\n".join(first), encoding="utf-8")
    predict(made.path, rows, to=tmp_path / "out.jsonl")  # an embedding model's only output
    lines = (tmp_path / "out.jsonl").read_text("utf-8").splitlines()
    given = [json.loads(line)["embedding"] for line in lines]
    np.testing.assert_allclose(given, student.encode([*first]), atol=1e-5)


def test_a_word_that_names_no_prompt_is_refused(place, tmp_path):
    """It would stick to the first word of every text."""
    with pytest.raises(LimbeckError, match=r"no prompt 'query' \(it has blame, praise\)"):
        run(place, tmp_path / "run", **{"embedding.prompt": "query"})


def test_a_model_of_fewer_layers_keeps_the_prompts_of_the_one_it_is_cut_from():
    teacher = tiny.embedder()
    modules = EmbeddingModules(prompts={"query": "find ", "document": "read ", "praise": PROMPT})
    set_modules(teacher.config, replace(modules, default_prompt="praise", similarity="dot"))
    student = build_student(teacher, layers=2)
    assert modules_of(student.config) == modules_of(teacher.config)
