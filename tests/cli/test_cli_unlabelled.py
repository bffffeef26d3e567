"""`--unlabelled` on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from limbeck.cli.app import app
from limbeck.run.inputs import places


@pytest.fixture
def asked(monkeypatch):
    """The recipe of a command, in place of its run."""
    found = []
    monkeypatch.setattr("limbeck.run.distill", lambda recipe, **_: found.append(recipe))
    monkeypatch.setattr("limbeck.cli.finished.show_result", lambda result: None)

    def ask(*arguments: str):
        result = CliRunner().invoke(app, ["distill", "kd", "--task", "sst2", *arguments])
        assert result.exit_code == 0, result.output
        return found[-1]

    return ask


def test_several_files_and_the_share(asked):
    recipe = asked("--unlabelled", "a.csv", "more/*.txt", "labelled_share=0.25", "--epochs", "2")
    assert recipe.unlabelled == ["a.csv", "more/*.txt"]
    assert (recipe.labelled_share, recipe.unlabelled_duplicates) == (0.25, "refuse")
    assert asked("unlabelled=one.csv").unlabelled == ["one.csv"]


def test_the_files_of_a_pattern_are_what_a_run_reads(tmp_path):
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).write_text("text\n", encoding="utf-8")
    found = dict.fromkeys(path for _, path in places({"unlabelled": [str(tmp_path / "*.txt")]}))
    assert list(found) == [tmp_path / "a.txt", tmp_path / "b.txt"]
    assert list(places({"unlabelled": ["none.txt"]})) == [("unlabelled", Path("none.txt"))]
