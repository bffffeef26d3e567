"""Static students of an embedding teacher: through a run, its commands and other readers."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest
import tiny_embedders as tiny
import torch
from typer.testing import CliRunner

from limbeck.cards.card import write_card
from limbeck.cli.app import app
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.static import StaticReader, StaticStudent
from limbeck.support.errors import LimbeckError
from limbeck.tasks import get_task_type, task_type_of


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("static-embedding")
    tiny.write_sentences(folder / "sentences.txt")
    tiny.write_pairs(folder / "pairs.tsv")
    tiny.encoder(folder / "teacher")
    return folder


def recipe(place, method="embedding-mse", **given) -> Recipe:
    usual = {
        "kind": "embedding", "teacher": str(place / "teacher"), "data": str(place / "sentences.txt"),
        "dev": str(place / "pairs.tsv"), "student.static": True, "student.width": 8, "batch_size": 8,
        "max_length": 16, "epochs": 8, "lr": 1e-2,
    }  # fmt: skip
    return Recipe.load(method, **(usual | given))


@pytest.fixture(scope="module")
def finished(place):
    return distill(recipe(place), out=place / "run", report=False)


def test_a_run_trains_and_ships_an_embedder(finished, place) -> None:
    assert isinstance(finished.student, StaticStudent)
    assert task_type_of(finished.student) is not get_task_type("sentence")
    terms = [epoch["train"]["target"] for epoch in finished.record.model_dump()["epochs"]]
    assert terms[-1] < 0.8 * terms[0]
    target = place / "embedded.parquet"
    command = [
        "predict",
        str(finished.path),
        str(place / "sentences.txt"),
        "--output",
        "embeddings",
    ]
    done = CliRunner().invoke(app, [*command, "--to", str(target)])
    assert done.exit_code == 0, done.output
    import pyarrow.parquet as pq

    table = pq.read_table(target).to_pydict()
    texts = table["text"][:5]
    (name,) = [one for one in table if one != "text"]
    said = subprocess.run(
        [sys.executable, finished.path / "student" / "predict.py", *texts],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    np.testing.assert_allclose(json.loads(said.stdout), table[name][:5], atol=1e-5)
    done = CliRunner().invoke(app, ["evaluate", str(finished.path)])
    assert done.exit_code == 0, done.output


@pytest.mark.slow
def test_other_readers_give_its_embeddings(finished, place) -> None:
    texts = tiny.sentences(5)
    with torch.no_grad():
        coded = tiny.tiny.tokenizer()(texts, padding=True, return_tensors="pt")
        expected = finished.student(coded["input_ids"], coded["attention_mask"]).logits
    for form in ("model2vec", "onnx", "numpy"):
        done = CliRunner().invoke(app, ["export", str(finished.path), "--format", form])
        assert done.exit_code == 0, done.output
    folder = finished.path / "exported"
    readers = {
        "sentence-transformers": tiny.sentence_transformer(folder / "model2vec").encode,
        "numpy": StaticReader(folder / "numpy"),
    }
    if importlib.util.find_spec("model2vec"):
        from model2vec import StaticModel

        readers["model2vec"] = StaticModel.from_pretrained(folder / "model2vec").encode
    for name, read in readers.items():
        np.testing.assert_allclose(read(texts), expected, atol=1e-5, err_msg=name)
    done = CliRunner().invoke(app, ["evaluate", str(folder / "onnx")])
    assert done.exit_code == 0, done.output


@pytest.mark.slow
def test_its_card_loads_it(finished) -> None:
    write_card(finished.path)
    card = (finished.path / "student" / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0]
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=finished.path / "student", capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "tensor" in ran.stdout


@pytest.mark.parametrize("method", ["embedding-lists", "embedding-similarity"])
def test_other_methods_of_embeddings(method, place) -> None:
    given = recipe(place, method, epochs=1)
    distill(given, out=place / method, report=False)


def test_the_width_is_the_student_s(place) -> None:
    with pytest.raises(LimbeckError, match=r"embedding\.width(.|\n)*set student\.width=4"):
        distill(recipe(place, **{"embedding.width": 4}), out=place / "refused")
