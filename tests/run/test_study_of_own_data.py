"""A study of the user's own rows: the page's own file runs, and errors name a study's keys."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.tables import collect

PAGE = Path(__file__).parents[2] / "docs" / "studies.md"


def test_a_study_of_own_data_as_documented(place, tmp_path, monkeypatch) -> None:
    """The page's own file names a model and no teachers: one is fine-tuned from it."""
    (said,) = re.findall(
        r"as `mine.yaml`:\n\n```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(said, encoding="utf-8")
    shutil.copytree(place / "teacher", "path/to/encoder")
    with Path("tickets.csv").open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["subject", "body", "queue"])
        rows.writerows(
            [text, text, ("in", "out")[row % 2]] for row, text in enumerate(tiny.sentences(160))
        )
    given = ["seeds=[1]", "settings.epochs=2", "settings.max_length=24", "settings.lr=1e-2"]
    dry = CliRunner().invoke(app, ["study", "mine.yaml", *given, "--dry-run"])
    assert dry.exit_code == 0, dry.output
    assert not Path("runs").exists()
    made = CliRunner().invoke(app, ["study", "mine.yaml", *given])
    assert made.exit_code == 0, made.output
    found = collect([Path("runs/studies/runs")])
    assert sorted(one.method for one in found) == ["finetune", "finetune", "kd", "rail-kd-l"]
    taught = {one.method: one.teacher for one in found}
    assert taught["kd"] is not None


@pytest.mark.parametrize(
    ("extra", "said", "fix"),
    [
        ({}, "no model to fine-tune one from; needed by plain, kd", "write model: ENCODER, or teachers: {at: FOLDER}"),
        ({"model": "pocket", "methods": {"skd-uniform": None}}, "the study has no team", "teachers: {team:"),
        ({"teachers": {"at": "gone/run"}}, "gone/run has no record of a run", "student.init: FOLDER"),
    ],
)  # fmt: skip
def test_errors_name_a_study_s_own_keys(place, tmp_path, extra, said, fix) -> None:
    keys = {
        "title": "t", "data": str(place / "reviews.csv"), "text_columns": ["review"], "label_column": "verdict",
        "methods": {"plain": {"method": "finetune"}, "kd": None}, **extra,
    }  # fmt: skip
    (tmp_path / "mine.yaml").write_text(json.dumps(keys), encoding="utf-8")
    made = CliRunner().invoke(app, ["study", str(tmp_path / "mine.yaml"), "--dry-run"])
    shown = " ".join(made.output.split())
    assert made.exit_code != 0
    assert said in shown
    assert fix in shown
    assert "--student" not in shown
    assert "--teacher" not in shown


def test_a_wrong_column_is_named(place, tmp_path) -> None:
    keys = {
        "title": "t",
        "data": str(place / "reviews.csv"),
        "model": str(place / "start"),
        "label_column": "verdict",
        "methods": {"kd": None},
    }
    (tmp_path / "mine.yaml").write_text(
        json.dumps(keys | {"text_columns": ["reviw"]}), encoding="utf-8"
    )
    made = CliRunner().invoke(app, ["study", str(tmp_path / "mine.yaml"), "--dry-run"])
    assert made.exit_code != 0
    assert "no text column 'reviw'" in " ".join(made.output.split())
