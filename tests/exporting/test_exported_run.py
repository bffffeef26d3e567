"""A run's student is exported by the run's own rows and settings, and scored where it lies."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from transformers import BertForSequenceClassification

import kind_models
import several_labels
import tiny_runs as tiny
from limbeck.data import RowsAsked
from limbeck.exporting.export_model import export
from limbeck.predicting.predict_rows import write_predictions
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill
from limbeck.run.run_folder import kept_predictions
from limbeck.scoring import evaluate, evaluation_of
from limbeck.support.errors import LimbeckError
from limbeck.support.files import checksum


@pytest.fixture
def finished(places, tmp_path) -> Path:
    """A run of one step, whose rate is 0 as it is warmed up: the graph of its student has been traced already."""
    model, data, settings = places["sentence"]
    shape = {"max_steps": 1, "warmup": 0.5, "batch_size": 8, "max_length": 24}
    recipe = Recipe.load("finetune", data=data, **settings, **shape, **{"student.init": model})
    return distill(recipe, out=tmp_path / "run", report=False).path


def test_a_run_is_exported_and_scored_by_its_own_rows(finished):
    with pytest.raises(LimbeckError, match="holds no exported model"):
        evaluate(finished, backend="onnxruntime")
    before = Record.load(finished)
    weights, config = (finished / "student" / name for name in ("model.safetensors", "config.json"))
    assert weights.stat().st_mode == config.stat().st_mode
    result = export(finished, max_drop=0.0)
    assert result.path == finished / "exported" / "onnx"
    assert result.manifest.weights == {
        "model.safetensors": checksum(finished / "student" / "model.safetensors")
    }
    gate, recipe = result.manifest.gate, before.recipe
    assert gate.fingerprint == before.examples.fingerprints["dev"]
    assert result.manifest.max_length == recipe["max_length"]
    for name, score in before.scores["dev"].items():
        assert result.manifest.measured.torch_scores[name] == pytest.approx(score)
        assert result.manifest.measured.scores[name] == pytest.approx(score)
    assert evaluate(finished, backend="onnxruntime") == result.manifest.measured.scores
    assert Record.load(finished) == before
    # Either side may be the exported one.
    of_export = evaluation_of(result.path, teacher=str(finished))
    of_run = evaluation_of(finished, teacher=str(result.path))
    assert of_export.classification.agreement == of_run.classification.agreement == 100
    assert of_export.row_tests.difference.difference == of_run.row_tests.difference.difference == 0


def test_an_export_is_held_to_its_class_names_as_its_model_is(finished, tmp_path, caplog):
    path = export(finished, max_drop=100.0).path
    rows = tmp_path / "mail.csv"
    rows.write_text("text,label\n" + 20 * "win money,spam\nsee you soon,ham\n")
    asked = {"task": "mail", "data": str(rows), "text_columns": ["text"], "label_column": "label"}
    said = []
    for model in (finished / "student", path):
        caplog.clear()
        evaluate(str(model), **asked)
        said.append([record.getMessage().partition(": ")[2] for record in caplog.records])
    assert said[0] == said[1] and "ham, spam" in said[0][0] and len(said[0]) == 1
    rows.write_text(rows.read_text() + "who knows,unsure\n")
    for model in (finished / "student", path):
        with pytest.raises(LimbeckError, match="unsure"):
            evaluate(str(model), **asked)


def test_a_run_with_test_rows_is_exported_with_its_score_on_them(places, tmp_path):
    model, _, _ = places["sentence"]
    data = str(tiny.write_csv(tmp_path / "rows.csv", 300))
    columns = {
        "text_columns": ["review"],
        "label_column": "verdict",
        "batch_size": 8,
        "max_length": 24,
    }
    recipe = Recipe.load("finetune", data=data, max_steps=1, **columns, **{"student.init": model})
    run = distill(recipe, out=tmp_path / "run", report=False).path
    result = export(run, max_drop=100.0)
    found = result.manifest.test
    assert found.torch_scores == Record.load(run).scores["test"]
    assert found.scores == evaluate(result.path, split="test")
    assert "on test" in (run / "student" / "README.md").read_text()
    # Rows that are named have no test part of the run's.
    assert export(run, data=data, max_drop=100.0, out=tmp_path / "other").manifest.test is None


def test_an_exported_folder_predicts_a_split_of_its_own_rows(finished, tmp_path):
    result = export(finished, max_drop=0.0)
    written, labeled = write_predictions(
        result.path, tmp_path / "rows.jsonl", RowsAsked(split="dev")
    )
    kept = kept_predictions(finished, "dev")
    names = result.manifest.labels
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert labeled and written.count == len(lines)
    assert [line["prediction"] for line in lines] == [names[one] for one in kept["prediction"]]
    # The columns are called as in the user's file.
    assert [*lines[0]][:2] == ["review", "verdict"]


def _file_and_dev(place: Path) -> dict:
    model = tiny.save(tiny.bert(1), place / "model")
    with (place / "dev.csv").open("w", newline="") as stream:
        # Every second label is wrong, so no model scores on them as on the training rows.
        rows = [["review", "verdict"], *([text, "positive"] for text in tiny.sentences(14))]
        csv.writer(stream).writerows(rows)
    data = tiny.write_csv(place / "train.csv", 40)
    return {"data": data, "dev": place / "dev.csv", "text_columns": ["review"],
            "label_column": "verdict", "student.init": model}  # fmt: skip


def _one_file_of_lists(place: Path) -> dict:
    config = kind_models.model("spans", layers=1).config
    config.num_labels = 1
    BertForSequenceClassification(config).save_pretrained(place / "model")
    kind_models.tokenizer().save_pretrained(place / "model")
    words = kind_models.PIECES[8:]
    lists = [
        {"query": f"who {words[row % 9]}", "passages": [f"{word} {row}" for word in words[:4]],
         "labels": [float(at == row % 4) for at in range(4)]}
        for row in range(40)
    ]  # fmt: skip
    (place / "lists.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lists))
    return {"data": place / "lists.jsonl", "kind": "pair-score", "student.init": place / "model"}


def _one_file_of_several_labels(place: Path) -> dict:
    several_labels.place_of(place)
    rows = (place / "reviews.csv").read_text().replace("|", "/")
    (place / "reviews.csv").write_text(rows)
    return {"data": place / "reviews.csv", "kind": "multi-label", "text_columns": ["review"],
            "label_column": "tags", "label_separator": "/", "student.layers": 1,
            "dev_share": 0.2, "test_share": 0.3,
            "student.init": place / "start"}  # fmt: skip


@pytest.mark.parametrize("given", [_file_and_dev, _one_file_of_lists, _one_file_of_several_labels])
@pytest.mark.slow
def test_an_export_is_scored_by_the_rows_that_its_run_was(given, tmp_path):
    """Not by training rows, whatever it is that says which rows those are; and by no other ones."""
    said = {key: str(one) if isinstance(one, Path) else one for key, one in given(tmp_path).items()}
    recipe = Recipe.load("finetune", task="own", max_steps=1, max_length=24, **said)
    run = distill(recipe, out=tmp_path / "run", report=False)
    exported = export(run.path)
    assert exported.manifest.gate.rows == len(kept_predictions(run.path, "dev")["label"])
    for place in (exported.path, run.path):
        found = evaluate(place, backend="onnxruntime")
        assert found == pytest.approx(run.scores["dev"], abs=1e-3)
    shutil.copytree(exported.path, tmp_path / "moved")
    changed = Path(said.get("dev", said["data"]))
    lines = changed.read_text().splitlines(keepends=True)
    changed.write_text("".join(lines[: len(lines) // 2]))
    for place in (exported.path, tmp_path / "moved"):
        with pytest.raises(LimbeckError, match="are not the rows that"):
            evaluate(place)


@pytest.mark.slow
def test_a_log_says_what_the_time_is_spent_on(finished, capsys):
    found = export(finished, format="onnx-int8", max_drop=100.0, show=True)
    assert found.manifest.conversion.precision == "int8"
    said = capsys.readouterr().err
    assert "writing the graph" in said and "int8 dynamic, per channel" in said
