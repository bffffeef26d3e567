"""Whole runs of kind embedding: killed and continued, judged by sentence-transformers, by every kind of method."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tiny_embedders as tiny
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer
from typer.testing import CliRunner

import tiny_runs
from limbeck.cards.card import write_card
from limbeck.cli.app import app
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("embedding")
    tiny.write_sentences(folder / "sentences.txt")
    tiny.write_pairs(folder / "pairs.tsv")
    tiny.encoder(folder / "teacher")
    return folder


@pytest.fixture(scope="module")
def recipe(place):
    def load(method="embedding-mse", **given):
        usual = {
            "kind": "embedding", "teacher": str(place / "teacher"), "data": str(place / "sentences.txt"),
            "dev": str(place / "pairs.tsv"), "student.layers": 2, "batch_size": 8, "epochs": 2, "lr": 1e-3,
            "max_length": 16,
        }  # fmt: skip
        return Recipe.load(method, **(usual | given))

    return load


@pytest.fixture(scope="module")
def finished(recipe, place):
    given = recipe("rail-kd-l", checkpoint_steps=2, epochs=3)
    return distill(given, out=place / "straight", report=False)


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_student(finished, place):
    given = Recipe.load(finished.path / "recipe.yaml")
    resumed = tiny_runs.continued(given, place / "killed", 7)
    weights = [load_file(run.path / "student" / "model.safetensors") for run in (finished, resumed)]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert resumed.scores == finished.scores
    losses = [[entry.train for entry in run.record.epochs] for run in (finished, resumed)]
    assert losses[0] == losses[1]


def test_sentence_transformers_gives_the_same_embeddings_and_score(finished):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers.sentence_transformer.evaluation import (
            EmbeddingSimilarityEvaluator,
        )
    student = tiny.sentence_transformer(finished.path / "student")
    first, second, right = zip(*tiny.pairs(), strict=True)
    found = EmbeddingSimilarityEvaluator(first, second, right)(student)
    ours = finished.scores["dev"]
    assert 100 * found["spearman_cosine"] == pytest.approx(ours["spearman"], abs=1e-3)
    assert 100 * found["pearson_cosine"] == pytest.approx(ours["pearson"], abs=1e-3)
    words = AutoTokenizer.from_pretrained(finished.path / "student")
    batch = words([*first], return_tensors="pt", padding=True)
    with torch.no_grad():
        own = finished.student.eval()(**batch).logits.numpy()
    np.testing.assert_allclose(student.encode([*first]), own, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(own, axis=1), 1, atol=1e-5)


def test_it_is_tested_against_its_teacher_over_pairs(finished):
    tests = finished.record.row_tests["dev"]
    gap = finished.scores["dev"]["spearman"] - finished.record.teacher.scores["dev"]["spearman"]
    assert tests.difference.difference == pytest.approx(gap)
    assert tests.difference.low <= tests.difference.high
    assert (tests.rows, tests.unit) == (len(tiny.pairs()), "pairs")
    told = CliRunner().invoke(app, ["compare", *[str(finished.path)] * 2]).output
    assert f"bootstrap over {tests.rows} pairs" in told and "alike" not in told
    card = write_card(finished.path).read_text("utf-8")
    assert "On dev, student less teacher: " in card


def test_the_root_of_the_folder_is_a_plain_encoder(finished):
    plain = AutoModel.from_pretrained(finished.path / "student").eval()
    assert type(plain).__name__ == "BertModel"
    words = AutoTokenizer.from_pretrained(finished.path / "student")
    batch = words(tiny.sentences(3), return_tensors="pt", padding=True)
    with torch.no_grad():
        states = plain(**batch).last_hidden_state
        mean = (states * batch["attention_mask"][..., None]).sum(1) / batch["attention_mask"].sum(
            1, True
        )
        own = finished.student.eval()(**batch).logits
    torch.testing.assert_close(own, mean / mean.norm(dim=1, keepdim=True))


def test_the_record_names_what_was_trained(finished):
    terms = finished.record.recipe["objectives"]
    assert {name: term["compare"] for name, term in terms.items()} == {
        "soft": "embedding_mse",
        "rail": "normalized_mse",
    }
    assert finished.record.examples.train == 40
    assert "SentenceTransformer" in (finished.path / "student" / "README.md").read_text("utf-8")


# One of each kind: sampled, attended, in buckets, explicit, transported, relations, curriculum, mixed inputs.
LAYERS = (
    *("alp-kd", "bert-emd", "internal-kd-pid-soft"),
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("ckd-po", "pkd", "minilmv2", "cr-ild")
    ),
)


@pytest.mark.parametrize("method", LAYERS)
@pytest.mark.slow
def test_methods_of_layers_train_embedding_models(method, recipe, tmp_path):
    given = {"max_steps": 2, "cache": "never"}
    given |= {"objectives.patience.mapping.layers": {1: 2}} if method == "pkd" else {}
    two = (
        Recipe.load(method, **{k: v for k, v in given.items() if "." in k}).first_stage is not None
    )
    given |= {"first_stage.max_steps": 2} if two else {}
    run = distill(recipe(method, **given), out=tmp_path / "run", report=False)
    assert np.isfinite(run.scores["dev"]["spearman"])
    assert "embedding_mse" in {term["compare"] for term in run.record.recipe["objectives"].values()}


@pytest.mark.slow
def test_one_command_with_a_narrower_student_and_a_shipped_map(place, tmp_path):
    tiny.encoder(tmp_path / "narrow", layers=2, width=8)
    typed = [
        "distill", "--method", "embedding-similarity", "--teacher", str(place / "teacher"),
        "--student", str(tmp_path / "narrow"), "--data", str(place / "sentences.txt"),
        "--dev", str(place / "pairs.tsv"), "--out", str(tmp_path / "run"), "--epochs", "1",
        "embedding.width=16", "max_length=16",
    ]  # fmt: skip
    said = CliRunner().invoke(app, typed)
    assert said.exit_code == 0, said.output
    student = tiny.sentence_transformer(tmp_path / "run" / "student")
    assert student.encode(["good film"]).shape == (1, 16)
    assert [type(module).__name__ for module in student] == [
        "Transformer",
        "Pooling",
        "Dense",
        "Normalize",
    ]


@pytest.mark.slow
def test_without_the_map_the_narrower_student_is_shipped_as_it_is(recipe, tmp_path):
    tiny.encoder(tmp_path / "narrow", layers=2, width=8)
    given = recipe(epochs=1, **{"student.init": str(tmp_path / "narrow"), "student.layers": None})
    run = distill(given, out=tmp_path / "run", report=False)
    assert tiny.sentence_transformer(run.path / "student").encode(["good film"]).shape == (1, 8)


@pytest.mark.parametrize(("changes", "message"), [
    ({"dev": None, "label_column": "score"}, "name a file of scored pairs"),
    ({"method": "dist"}, "compares mutually exclusive classes"),
    ({"method": "finetune"}, "learns from labels alone"),
    ({"method": "kd", "objectives.soft.temperature": 2}, "the setting would have no effect"),
    ({"embedding.pooling": "most"}, "embedding.pooling"),
    ({"classes": ["a", "b"]}, "sentences to embed have no classes"),
    ({"unlabelled": ["more.txt"]}, "unlabelled"),
])  # fmt: skip
def test_what_cannot_be_is_refused_before_the_first_step(changes, message, recipe, tmp_path):
    changes = dict(changes)
    with pytest.raises(LimbeckError, match=message):
        distill(recipe(changes.pop("method", "embedding-mse"), **changes), out=tmp_path / "run")


def test_a_term_of_embeddings_is_refused_for_classes():
    own = Recipe.load("embedding-mse", kind="sentence", teacher="t", task="sst2")
    from limbeck.objectives import ModelShape, Shape

    shape = Shape(ModelShape(2, 8, 2, labels=2), ModelShape(4, 8, 2, labels=2))
    with pytest.raises(LimbeckError, match="compares sentence embeddings"):
        own.objectives["target"].build(shape, "objectives.target")
