"""A run's student is exported by the run's own rows and settings, and scored where it lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from limbeck.errors import LimbeckError
from limbeck.exporting import export
from limbeck.files import checksum
from limbeck.recipe import Recipe
from limbeck.reporting.records import Record
from limbeck.run import distill, evaluate


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
