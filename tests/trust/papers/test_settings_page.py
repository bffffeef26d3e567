"""The page of settings and `limbeck methods NAME` say what the recipes say."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from limbeck.cli.app import app
from limbeck.recipe import Recipe, catalog
from limbeck.recipe.paper_settings import stated_of
from limbeck.recipe.quick import BY_ROWS, quick_settings

ROOT = Path(__file__).parents[3]


def settings_page():
    place = ROOT / "scripts" / "settings_page.py"
    spec = importlib.util.spec_from_file_location("settings_page", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def said_of(method: str, monkeypatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    ended = CliRunner().invoke(app, ["methods", method])
    assert ended.exit_code == 0, ended.output
    return [line.strip() for line in ended.output.splitlines()]


def test_the_page_is_what_the_script_writes():
    module = settings_page()
    assert module.PAGE.read_text("utf-8") == module.page(), "run: python scripts/settings_page.py"


def test_the_page_has_a_section_for_every_set():
    text = settings_page().generated()
    for method in catalog.names():
        for name in stated_of(method):
            assert any(
                f"`settings={name}`" in line and f"`{method}`" in line
                for line in text.splitlines()
                if line.startswith("#### ")
            ), (method, name)


def test_a_method_is_shown_with_its_papers_settings_beside_its_own(monkeypatch):
    lines = said_of("rail-kd-l", monkeypatch)
    assert ["epochs", "by", "rows", "40"] in [line.split() for line in lines]
    assert ["lr", "by", "depth", "searched"] in [line.split() for line in lines]
    assert ["max_length", "128", "not", "stated"] in [line.split() for line in lines]
    assert "searched: batch_size in 8, 16, 32" in lines
    assert "runs: 5" in lines
    assert any(line.startswith("start: ") and "distilbert" in line for line in lines)


def test_tasks_that_have_something_otherwise_are_shown(monkeypatch):
    assert "rte, mnli, qnli: batch_size 32" in said_of("cr-ild", monkeypatch)
    assert "stsb: first_stage.lr 5e-5" in said_of("cr-ild", monkeypatch)
    lines = said_of("skd-student-rank", monkeypatch)
    assert "mrpc, rte, stsb: epochs 15, team.student_epochs 10" in lines


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_name_or_value_is_cut_on_a_narrow_terminal(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    said = CliRunner().invoke(app, ["methods", "finetune"]).output
    table = said.partition("Settings\n")[2].partition("settings=internal-kd")[0]
    assert "…" not in table
    words = table.split()
    assert all(name in words for name in stated_of("finetune"))
    assert "student.init" in words
    assert max(map(len, table.splitlines())) <= width


def test_a_method_without_stated_settings_says_so(monkeypatch):
    assert "of papers: none are known" in said_of("codir", monkeypatch)


@pytest.mark.parametrize("method", ["kd", "tinybert", "cr-ild", "skd-uniform"])
def test_the_quick_column_is_what_a_run_has(method):
    recipe = Recipe.load(method)
    quick = quick_settings(method)
    for key in ("lr", "epochs"):
        left_open = getattr(recipe, key) is None
        assert (
            quick[key] == BY_ROWS[key] if left_open else float(quick[key]) == getattr(recipe, key)
        )
    assert quick["lr_schedule"] == recipe.lr_schedule
    assert quick.get("adam_epsilon", 1e-8) == recipe.epsilon
    if recipe.first_stage is not None:
        (first, _) = recipe.stages()
        assert float(quick["first_stage.lr"]) == first.recipe.lr
        assert quick["first_stage.batch_size"] == first.recipe.batch_size


def test_showing_a_method_does_not_load_torch():
    script = (
        "import sys; from limbeck.cli.methods_command import show_stated; from rich.console import Console; "
        "show_stated('cr-ild', Console(quiet=True)); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("command", ["distill", "finetune"])
def test_the_flag_is_the_recipes_key(command):
    ended = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert "--settings" in ended.output
