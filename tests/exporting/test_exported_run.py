"""A run's student is exported by the run's own rows and settings, and scored where it lies."""

from __future__ import annotations

import pytest

from limbeck.errors import LimbeckError
from limbeck.exporting import export
from limbeck.files import checksum
from limbeck.reporting.records import Record
from limbeck.run import evaluate


def test_a_run_is_exported_and_scored_by_its_own_rows(copied):
    with pytest.raises(LimbeckError, match="holds no exported model"):
        evaluate(copied, backend="onnxruntime")
    before = Record.load(copied)
    result = export(copied, max_drop=0.0)
    assert result.path == copied / "exported" / "onnx"
    assert result.manifest.weights == {
        "model.safetensors": checksum(copied / "student" / "model.safetensors")
    }
    gate, recipe = result.manifest.gate, before.recipe
    assert gate.fingerprint == before.examples.fingerprints["dev"]
    assert result.manifest.max_length == recipe["max_length"]
    for name, score in before.scores["dev"].items():
        assert result.manifest.measured.torch_scores[name] == pytest.approx(score)
        assert result.manifest.measured.scores[name] == pytest.approx(score)
    assert evaluate(copied, backend="onnxruntime") == result.manifest.measured.scores
    assert Record.load(copied) == before
