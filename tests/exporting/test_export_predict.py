"""`limbeck predict` by an exported file: what torch predicts, for every task type that has predictions of rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from export_rows import SENTENCES
from typer.testing import CliRunner

from limbeck import LimbeckError, predict
from limbeck.cli.app import app

ROWS = {
    "sentence": [{"text": text} for text in ("good film", "bad", "the end of a good film", "")],
    "regression": [{"first": a, "second": b} for a in SENTENCES for b in SENTENCES],
    "tokens": [{"tokens": text.split()} for text in SENTENCES],
    "spans": [{"question": "who ?", "context": text} for text in SENTENCES],
}
OUTPUTS = {
    "sentence": ["labels", "scores", "probabilities", "logits"],
    "regression": ["labels"],
    "tokens": ["labels", "scores"],
    "spans": ["labels", "scores"],
    "image": ["labels", "probabilities"],
}
NAMED = {"sentence": ["text"], "regression": ["first", "second"]}


def flat(value) -> list:
    """The numbers and words of a prediction."""
    if isinstance(value, dict):
        value = list(value.values())
    return [one for item in value for one in flat(item)] if isinstance(value, list) else [value]


@pytest.mark.parametrize(
    "kind",
    [
        # Other files export these.
        kind if kind in ("sentence", "tokens") else pytest.param(kind, marks=pytest.mark.slow)
        for kind in OUTPUTS
    ],
)
def test_onnx_runtime_predicts_what_torch_predicts(kind, places, exported) -> None:
    model, data, _ = places[kind]
    rows = ROWS.get(kind) or [{"image": str(path)} for path in sorted(Path(data).glob("dev/*/*"))]
    settings = {"output": OUTPUTS[kind], "text_columns": NAMED.get(kind, ())}
    theirs = predict(model, rows, **settings)
    ours = predict(exported[kind].path, rows, **settings)
    assert len(ours) == len(rows) and ours.blank == theirs.blank
    for one, other in zip(ours, theirs, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            found, expected = flat(one[name]), flat(other[name])
            assert len(found) == len(expected)
            for a, b in zip(found, expected, strict=True):
                assert a == b or np.isclose(a, b, atol=1e-3), (name, a, b)


def test_by_the_command_with_the_columns_it_was_measured_on(places, exported, tmp_path) -> None:
    _, data, settings = places["sentence"]
    folder = exported["sentence"].path
    out = tmp_path / "out.jsonl"
    arguments = ["predict", str(folder), data, "--to", str(out), "--backend", "onnxruntime"]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.stderr
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    right = [row["prediction"] == row[settings["label_column"]] for row in rows]
    assert (
        len(rows) == 40
        and 100 * np.mean(right) == exported["sentence"].manifest.measured.scores["accuracy"]
    )


def test_what_an_exported_file_does_not_give_is_refused(exported) -> None:
    folder = exported["sentence"].path
    with pytest.raises(LimbeckError) as refused:
        predict(folder, ["good"], output=["labels", "embeddings"], precision="bf16")
    assert [p.message.split(":")[0] for p in refused.value.problems] == [
        "output embeddings", "precision bf16",
    ]  # fmt: skip
    with pytest.raises(LimbeckError, match="not torch's"):
        predict(folder, ["good"], backend="torch")
    with pytest.raises(LimbeckError, match="exported and measured with"):
        predict(folder, ["good"], max_length=4096)
