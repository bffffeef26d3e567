"""`limbeck bench` from its line to its files."""

from __future__ import annotations

from pathlib import Path

from test_bench import exported
from typer.testing import CliRunner

from limbeck.cli.app import app
from limbeck.latency.report import BenchReport


def test_the_command_times_what_it_is_given_as_it_is_asked_to(tmp_path: Path) -> None:
    model, out = exported(tmp_path, "quick", 90.0, 1), tmp_path / "out"
    asked = ["--lengths", "4", "--batch-sizes", "2", "--passes", "5", "--warm-up", "1"]
    ended = CliRunner().invoke(app, ["bench", model, *asked, "--out", str(out)])
    assert ended.exit_code == 0, ended.output
    assert f"written to {out}" in ended.stdout
    (one,) = BenchReport.model_validate_json((out / "bench.json").read_text()).measurements
    assert (one.condition.length, one.condition.batch) == (4, 2)
    assert (out / "bench.md").is_file()
