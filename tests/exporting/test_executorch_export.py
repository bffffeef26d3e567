"""ExecuTorch programs against torch, where ExecuTorch is installed; what they cannot be is said everywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from said_alone import said_alone

import tiny_runs as tiny
from limbeck import predict
from limbeck.exporting import ExportSettings, export
from limbeck.runtimes.predictor import OnnxPredictor
from limbeck.scoring import evaluate
from limbeck.support.errors import LimbeckError


def test_programs_say_what_torch_says(places, tmp_path):
    pytest.importorskip("executorch", exc_type=ImportError)
    model, data, settings = places["sentence"]
    asked = {"format": "executorch", "batch_size": 4, "max_length": 24}
    result = export(model, data=data, out=tmp_path / "out", threads=1, **asked, **settings)
    assert result.manifest.measured.logits.largest_difference < 1e-4
    assert result.manifest.bytes == (result.path / "model.pte").stat().st_size
    assert evaluate(result.path) == result.manifest.measured.scores
    predictor = OnnxPredictor.load(result.path)
    texts = ["good film", "the bad plot very slow", "bad good long"] * 3
    batch = predictor.encode(texts[:3])
    torchs = tiny.BertForSequenceClassification.from_pretrained(model).eval()
    with torch.no_grad():
        expected = torchs(
            **{name: torch.from_numpy(batch[name]) for name in predictor.session.inputs}
        )
    np.testing.assert_allclose(predictor.logits_of(batch), expected.logits, atol=1e-5)
    assert len(predictor.logits(texts)) == 9  # four at a time
    rows = [*texts, " ".join(texts)]  # the last is cut
    ours = predict(result.path, rows, output=["labels", "scores"])
    theirs = predict(model, rows, output=["labels", "scores"], max_length=24)
    assert [row["prediction"] for row in ours] == [row["prediction"] for row in theirs]
    np.testing.assert_allclose(
        [row["score"] for row in ours], [row["score"] for row in theirs], atol=1e-5
    )
    with pytest.raises(LimbeckError, match="at most 4 × 24, not 9 × "):
        predictor.logits_of(predictor.encode(texts))
    labels = [torchs.config.id2label[int(row.argmax())] for row in expected.logits]
    assert (
        said_alone(result.path, *texts[:3], needs=("torch", "onnx", "datasets", "transformers"))
        == labels
    )
    assert all(weight.requires_grad for weight in torchs.parameters())


def test_what_a_program_cannot_be_is_said(places, tmp_path, monkeypatch):
    assert ExportSettings(format="executorch", precision="fp16").problems()
    model, data, settings = places["text"]
    monkeypatch.setattr("limbeck.runtimes.sessions.find_spec", lambda name: None)
    with pytest.raises(LimbeckError, match=r"needs executorch.*not installed") as missing:
        export(model, data=data, out=tmp_path / "out", format="executorch", **settings)
    assert "limbeck[executorch]" in str(missing.value)
    monkeypatch.setattr("limbeck.runtimes.sessions.find_spec", lambda name: name)
    with pytest.raises(LimbeckError, match="choose format onnx, onnx-int8 or openvino"):
        export(model, data=data, out=tmp_path / "out", format="executorch", **settings)
