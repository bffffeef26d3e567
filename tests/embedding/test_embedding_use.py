"""A finished embedding student used: scored again, asked for embeddings, exported; and cut to fewer numbers."""

from __future__ import annotations

import ast
import json
import runpy
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tiny_embedders as tiny
import torch

from limbeck import LimbeckError, predict
from limbeck.activations import Trace
from limbeck.data import Collator, encode, load_task
from limbeck.embedding import EmbeddingModules, embedder
from limbeck.embedding.folder import write_modules
from limbeck.evaluation.model_outputs import compact_outputs_of
from limbeck.exporting.export_model import export
from limbeck.objectives import ModelShape, Shape
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.runtimes.manifest import read_export
from limbeck.runtimes.predictor import OnnxPredictor
from limbeck.scoring import evaluate
from limbeck.students import load_model, read_tokenizer
from limbeck.support.step_state import StepState
from limbeck.tasks import EMBEDDING, ScoredSplit

NOW = StepState(seed=0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("used")
    tiny.write_sentences(folder / "sentences.txt")
    tiny.write_pairs(folder / "pairs.tsv")
    tiny.encoder(folder / "teacher")
    recipe = Recipe.load(
        "embedding-mse", teacher=str(folder / "teacher"), data=str(folder / "sentences.txt"),
        dev=str(folder / "pairs.tsv"), max_length=16, epochs=1,
        **{"student.layers": 2, "objectives.target.dimensions": [4, 8]},
    )  # fmt: skip
    return distill(recipe, out=folder / "run", report=False)


@pytest.fixture(scope="module")
def expected(finished):
    return tiny.sentence_transformer(finished.path / "student").encode(tiny.sentences(5))


def test_it_is_scored_again_on_its_own_pairs_and_on_others(finished, tmp_path):
    assert evaluate(finished.path) == pytest.approx(finished.scores["dev"])
    tiny.write_pairs(tmp_path / "again.tsv")
    found = evaluate(finished.path / "student", data=str(tmp_path / "again.tsv"))
    assert found == pytest.approx(finished.scores["dev"])


def test_its_embeddings_are_those_of_sentence_transformers(finished, expected, tmp_path):
    rows = tmp_path / "rows.txt"
    rows.write_text("\n".join(tiny.sentences(5)), encoding="utf-8")
    predict(finished.path, rows, to=tmp_path / "out.jsonl", output="embeddings")
    lines = (tmp_path / "out.jsonl").read_text("utf-8").splitlines()
    given = [json.loads(line)["embedding"] for line in lines]
    np.testing.assert_allclose(given, expected, atol=1e-5)
    with pytest.raises(LimbeckError, match="is an embedding model, which has its own"):
        predict(finished.path, rows, to=tmp_path / "b.jsonl", output="embeddings", pooling="cls")


@pytest.mark.slow
def test_an_exported_one_embeds_alike_alone(finished, expected, tmp_path):
    # The shapes that tests hold functions to are no numbers while a model is traced: another process has none.
    typed = [
        "-m",
        "limbeck",
        "export",
        str(finished.path),
        "--format",
        "onnx",
        "--out",
        str(tmp_path / "onnx"),
    ]
    subprocess.run([sys.executable, *typed], capture_output=True, check=True)
    made = read_export(tmp_path / "onnx")
    assert made.measured.agreement is None
    assert made.measured.drop == pytest.approx(0, abs=0.1)
    predictor = OnnxPredictor.load(made.folder)
    np.testing.assert_allclose(predictor.logits(tiny.sentences(5)), expected, atol=1e-4)
    ran = subprocess.run(
        [sys.executable, str(made.folder / "predict.py"), *tiny.sentences(5)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    np.testing.assert_allclose(ast.literal_eval(ran.stdout), expected, atol=1e-4)


@pytest.fixture(scope="module")
def prompted(tmp_path_factory):
    """A student with prompts, a linear map of its own, and texts in lower case; and what was exported of it."""
    folder = tmp_path_factory.mktemp("prompted")
    teacher = tiny.encoder(folder / "teacher", 2)
    modules = EmbeddingModules(
        prompts={"query": "good film ", "document": "bad plot ", "given": "long end "},
        default_prompt="given",
        lower_case=True,
    )
    write_modules(teacher, modules, 16, None)
    tiny.write_sentences(folder / "sentences.txt")
    tiny.write_pairs(folder / "pairs.tsv")
    recipe = Recipe.load(
        "embedding-mse", teacher=str(teacher), data=str(folder / "sentences.txt"),
        dev=str(folder / "pairs.tsv"), max_length=16, max_steps=1,
        **{"student.layers": 1, "embedding.width": 8},
    )  # fmt: skip
    run = distill(recipe, out=folder / "run", report=False)
    with pytest.MonkeyPatch.context() as patch:
        # The shapes that tests hold `pool` to are no numbers while a model is traced.
        patch.setattr(embedder, "pool", _mean)
        return run, export(run.path)


def _mean(states, mask, _pooling):
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


TEXTS = ["A GOOD film", "the slow END"]


@pytest.mark.slow
def test_an_exported_one_is_scored_by_its_runs_pairs(prompted):
    run, exported = prompted
    assert exported.manifest.weights.keys() == {"model.safetensors", "2_Dense/model.safetensors"}
    for place in (exported.path, run.path):
        found = evaluate(place, backend="onnxruntime")
        assert found["pearson"] == pytest.approx(run.scores["dev"]["pearson"], abs=1e-2)


@pytest.mark.parametrize(("kind", "name"), [
    ("sentence", None), ("query", "query"), ("passage", "document"),
])  # fmt: skip
@pytest.mark.slow
def test_an_exported_one_keeps_its_prompts_and_small_letters(prompted, kind, name):
    """Every way to ask it gives what sentence-transformers gives of the student."""
    run, exported = prompted
    expected = tiny.sentence_transformer(run.path / "student").encode(TEXTS, prompt_name=name)
    rows = predict(exported.path, TEXTS, output="embeddings", prompt=kind)
    np.testing.assert_allclose([row["embedding"] for row in rows], expected, atol=1e-4)
    found = OnnxPredictor.load(exported.path).logits(TEXTS, prompt=kind)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    shipped = runpy.run_path(str(exported.path / "predict.py"))
    np.testing.assert_allclose(shipped["predict"](TEXTS, kind), expected, atol=1e-4)
    if kind == "sentence":
        np.testing.assert_allclose(shipped["predict"](TEXTS), expected, atol=1e-4)


@pytest.mark.slow
def test_a_prompt_that_it_does_not_have_is_refused(prompted):
    with pytest.raises(LimbeckError, match="prompt"):
        OnnxPredictor.load(prompted[1].path).logits(TEXTS, prompt="quary")


# ---- cut to fewer numbers ----


@pytest.mark.parametrize("width", [4, 8])
def test_sentence_transformers_cuts_it_to_the_same_embeddings_and_scores(width, finished):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers.sentence_transformer.evaluation import (
            EmbeddingSimilarityEvaluator,
        )
    student = finished.path / "student"
    theirs = tiny.sentence_transformer(student, truncate_dim=width)
    first, second, right = zip(*tiny.pairs(), strict=True)
    expected = EmbeddingSimilarityEvaluator(first, second, right)(theirs)
    dev = finished.record.recipe["dev"]
    task, splits = load_task(None, dev, kind="embedding", for_training=False)
    words = read_tokenizer(student)
    encoded, _ = encode(splits["dev"], task, words, 16)
    model = load_model(student, auto=EMBEDDING.auto)
    whole = compact_outputs_of(model, encoded, Collator(words, kind=EMBEDDING))
    np.testing.assert_allclose(theirs.encode([*first]), whole[::2, :width], atol=1e-5)
    found = EMBEDDING.results(
        task, whole[:, :width], ScoredSplit(encoded, splits["dev"], words)
    ).scores
    for name in ("spearman", "pearson"):
        assert found[name] == pytest.approx(100 * expected[f"{name}_cosine"], abs=1e-3)
    assert found["pearson"] != pytest.approx(finished.scores["dev"]["pearson"], abs=1e-3)


def term_of(compare: str, **settings):
    own = Recipe.load(
        "embedding-mse", teacher="t", data="d", **{"objectives.target": {"compare": compare, **settings}}
    )  # fmt: skip
    shape = Shape(ModelShape(2, 6, 2, embedding=6), ModelShape(4, 6, 2, embedding=6), EMBEDDING)
    return own.objectives["target"].build(shape, "objectives.target")


def sides():
    generator = torch.Generator().manual_seed(0)
    return [Trace(logits=torch.randn(5, 6, generator=generator)) for _ in range(2)]


def test_squared_error_of_the_first_numbers_by_loops():
    student, teacher = sides()
    found = term_of("embedding_mse", dimensions=[2, 4])(student, teacher, {}, NOW)
    gap = ((student.logits - teacher.logits) ** 2).tolist()
    by_width = [sum(sum(row[:width]) for row in gap) / 5 for width in (2, 4, 6)]
    assert found.item() == pytest.approx(sum(by_width) / 3, rel=1e-5)


@pytest.mark.parametrize("compare", ["similarity_mse", "similarity_kl"])
def test_the_first_numbers_learn_the_whole_teachers_similarities(compare):
    student, teacher = sides()
    found = term_of(compare, dimensions=[2])(student, teacher, {}, NOW)
    plain = term_of(compare)
    alone = Trace(logits=torch.nn.functional.pad(student.logits[:, :2], (0, 4)))
    each = [plain(one, teacher, {}, NOW).item() for one in (alone, student)]
    assert found.item() == pytest.approx(sum(each) / 2, rel=1e-5)


def test_a_student_that_was_cut_knows_more_with_the_term():
    """Of a linear student: with the term its first three numbers learn the similarities too."""
    generator = torch.Generator().manual_seed(1)
    teacher = torch.randn(40, 6, generator=generator) * torch.tensor([0.1, 0.1, 0.1, 1.0, 1.0, 1.0])
    gaps = []
    for settings in ({}, {"dimensions": [3]}):
        turn = torch.nn.Linear(6, 6, bias=False)
        torch.nn.init.eye_(turn.weight)
        optimizer = torch.optim.Adam(turn.parameters(), lr=0.05)
        term = term_of("similarity_mse", **settings)
        for _ in range(150):
            value = term(Trace(logits=turn(teacher)), Trace(logits=teacher), {}, NOW)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
        cut = Trace(logits=torch.nn.functional.pad(turn(teacher)[:, :3], (0, 3)))
        gaps.append(term_of("similarity_mse")(cut, Trace(logits=teacher), {}, NOW).item())
    assert gaps[1] < 0.2 * gaps[0]


@pytest.mark.parametrize(("settings", "message"), [
    ({"compare": "embedding_mse", "dimensions": [7]}, "have 6 numbers"),
    (
        {"compare": "embedding_mse", "dimensions": [2], "project": {"to": "teacher", "sides": "student"}},
        "a map mixes them",
    ),
    ({"compare": "embedding_mse", "project": {"to": 4, "sides": "student"}}, "the teacher's 6"),
])  # fmt: skip
def test_widths_that_cannot_be_are_refused(settings, message):
    with pytest.raises(LimbeckError, match=message):
        term_of(**settings)
