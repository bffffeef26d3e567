"""What `limbeck export` prints at its end."""

from __future__ import annotations

import pytest

from limbeck.cli.shipping_commands import show_export
from limbeck.runtimes.manifest import (
    Attempt,
    Conversion,
    ExportManifest,
    GateMeasure,
    GateRowsFacts,
    HeldOutScores,
)


def said(recall: dict[str, list[float]], capsys) -> str:
    measured = GateMeasure(
        scores={"primary": 70.0}, torch_scores={"primary": 70.5}, drop=0.5, agreement=0.99,
        recall=recall,
    )  # fmt: skip
    how = Conversion(name="int8 dynamic, per channel")
    show_export(
        ExportManifest(
            format="onnx-int8", file="model.onnx", kind="sentence", architecture="Bert",
            source="runs/small", conversion=how, measured=measured, max_drop=0.5,
            gate=GateRowsFacts(task="t", data="d", split="dev", rows=100, fingerprint="f"),
            test=HeldOutScores(scores={"f1": 60.0, "primary": 60.0}, torch_scores={"primary": 61.0}),
            tried=[Attempt(conversion=how, measured=measured, passed=True, bytes=10**6)],
        )
    )  # fmt: skip
    return " ".join(capsys.readouterr().out.split())


def test_a_constant_model_at_the_gate_is_said(capsys):
    assert "predicts 'yes' for every row" in said({"no": [0.0, 0.0], "yes": [100.0, 100.0]}, capsys)


@pytest.mark.parametrize(
    "recall", [{}, {"no": [5.0, 0.0], "yes": [100.0, 100.0]}, {"yes": [100.0, 100.0]}]
)
def test_others_are_shown_without_it(recall, capsys):
    found = said(recall, capsys)
    assert "for every row" not in found and "shipped" in found
    assert ("recall of no: 5.0 → 0.0" in found) == ("no" in recall)


def test_a_loss_is_a_change_below_zero_and_test_rows_have_a_line(capsys):
    found = said({}, capsys)
    assert "int8 dynamic, per channel 70.00 -0.50 99.00 %" in found
    assert "Score: test f1 60.0; in torch 61.0" in found
