"""A whole compression of a tiny teacher, from the command line to the files that `push` sends."""

from __future__ import annotations

import json

import pytest
import tiny_compression as tiny
from typer.testing import CliRunner

from limbeck.cards.push import push_files
from limbeck.cli.app import app
from limbeck.compressing.trials import numbered_trials
from limbeck.scoring.evaluation import evaluate


@pytest.mark.slow
@pytest.mark.drawn
def test_from_a_teacher_to_a_student_that_ships(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny.write_teacher(tmp_path / "teacher")
    tiny.write_rows(tmp_path / "rows.csv", 300)
    line = "compress teacher --budget size=90KB,latency=1s --data rows.csv --trials 3 --trial-rows 100 --finalists 2"
    line += " --seeds 1 --precisions int8 --out small epochs=2"
    for _ in range(2):  # the second time everything is there
        ended = CliRunner().invoke(app, line.split())
        assert ended.exit_code == 0, ended.output
        assert "Recommended:" in ended.stdout and "limbeck push small/students/" in ended.stdout
    found = json.loads((tmp_path / "small" / "front.json").read_text())
    assert len(numbered_trials(tmp_path / "small")) == 3
    points = [one for one in found["points"] if one["kind"] != "cascade"]
    kinds = [(one["kind"], one["precision"]) for one in points]
    # Of two finalists one may lose too much in int8, on so few rows.
    assert kinds[-2:] == [("teacher", "float"), ("teacher", "int8")]
    assert {*kinds[:-2]} == {("student", "int8")}
    (best,) = (one for one in found["points"] if one["recommended"])
    assert best["fits"] and best["costs"]["size"] <= 90_000
    # What the page says of it is what evaluation finds, on the other half.
    again = evaluate(best["path"], split="test")
    assert again["primary"] == pytest.approx(best["score"])
    sent = [one.name for one in push_files(best["run"], "you/small")]
    assert {"README.md", "model.safetensors", "onnx-int8/model.onnx"} <= {*sent}
    page = (tmp_path / "small" / "front.html").read_text()
    assert "Trials" in page and page.count("<svg") > 1
    assert (tmp_path / "small" / "front.svg").read_text().startswith("<svg")
