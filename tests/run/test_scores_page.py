"""The commands of docs/scores.md run as they are printed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from limbeck.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "scores.md"
COMMANDS, *_ = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("line", COMMANDS.splitlines())
def test_a_command_of_the_page_runs(line, finished, place, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("student", "kd", "finetune"):
        shutil.copytree(finished.path, tmp_path / "runs" / name)
    shutil.copytree(place / "teacher", tmp_path / "runs" / "teacher")
    shutil.copy(place / "reviews.csv", tmp_path / "other.csv")
    words = line.partition("#")[0].split()
    made = CliRunner().invoke(app, words[1:])
    assert made.exit_code == 0, made.output


def test_a_single_file_has_no_test_split(finished, place) -> None:
    words = [
        "evaluate",
        str(finished.path),
        "--data",
        str(place / "reviews.csv"),
        "--split",
        "test",
    ]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 2
    assert "leave out --split: these rows are not divided" in made.output
