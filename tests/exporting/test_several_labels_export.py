"""A model of several labels a row as an ONNX file: scored and asked with its own thresholds."""

from __future__ import annotations

import pytest
import torch
from said_alone import said_alone
from transformers import AutoTokenizer

import several_labels as several
import tiny_runs as tiny
from limbeck import predict
from limbeck.exporting.export_model import export
from limbeck.scoring import evaluate

TEXTS = ["good film", "bad slow plot", "good slow long end", "bad the long end"]
THRESHOLDS = [0.5, 0.5, 0.1]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    model = several.knowing_teacher(1)
    with torch.no_grad():
        model.bert.encoder.layer[0].attention.self.value.weight.mul_(8)
    model.config.label_thresholds = THRESHOLDS
    tiny.save(model, folder / "model")
    rows = several.write_rows(folder / "rows.jsonl", 40)
    columns = {"text_columns": ["review"], "label_column": "tags"}
    result = export(
        str(folder / "model"), task="own", data=str(rows), out=folder / "out", **columns
    )
    return model, folder, result


def expected_of(model, folder) -> list[list[str]]:
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    found = []
    for text in TEXTS:
        with torch.no_grad():
            one = model(**tokenizer(text, return_tensors="pt", return_token_type_ids=False))
        likely = one.logits[0].sigmoid().tolist()
        pairs = zip(several.CLASSES, likely, THRESHOLDS, strict=True)
        found.append([name for name, share, least in pairs if share >= least])
    return found


@pytest.mark.slow
def test_the_snippet_says_all_classes_of_a_row(exported):
    model, folder, result = exported
    expected = expected_of(model, folder)
    assert sorted({len(one) for one in expected}) != [1]
    assert said_alone(result.path, *TEXTS) == expected


@pytest.mark.slow
def test_predict_says_the_same_as_of_the_checkpoint(exported):
    model, folder, result = exported
    rows = [{"review": text} for text in TEXTS]
    for place in (result.path, folder / "model"):
        found = [one["prediction"] for one in predict(place, rows)]
        assert found == expected_of(model, folder)


@pytest.mark.slow
def test_it_is_measured_with_its_thresholds(exported):
    _, folder, result = exported
    measured = result.manifest.measured
    assert result.manifest.kind == "multi-label"
    assert measured.drop == pytest.approx(0, abs=1e-3) and measured.agreement == 1.0
    assert set(measured.recall) == set(several.CLASSES)
    assert measured.recall["short"] == [100, 100]  # a tenth is enough of a probability
    file = str(folder / "rows.jsonl")
    columns = {"text_columns": ["review"], "label_column": "tags"}
    assert evaluate(result.path, "own", file, **columns) == pytest.approx(measured.scores)
    assert evaluate(folder / "model", "own", file, **columns) == pytest.approx(
        measured.torch_scores
    )
