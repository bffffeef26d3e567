"""Files of Python that register losses: how a recipe and a command name them, and what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.objectives import OBJECTIVES
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill
from limbeck.scoring import evaluate
from limbeck.support import registry
from limbeck.support import registry as plugins
from limbeck.support.errors import LimbeckError
from limbeck.support.registry import load_plugins

GAP = '''
import limbeck

@limbeck.objective("{name}")
class Gap(limbeck.Objective):
    """The mean distance of logits."""

    def forward(self, student, teacher, batch, step_state):
        return {share} * (student.logits - teacher.logits).abs().mean()
'''


@pytest.fixture(autouse=True)
def as_before(monkeypatch) -> Iterator[None]:
    """What a test registers is gone behind it."""
    known = dict(OBJECTIVES._known)
    monkeypatch.setattr(plugins, "_LOADED", {})
    yield
    OBJECTIVES._known = known
    for name in [name for name in sys.modules if name.startswith("plugin_")]:
        del sys.modules[name]


def write(folder: Path, name: str = "gap", file: str = "own.py", share: float = 1.0) -> Path:
    path = folder / file
    path.write_text(GAP.format(name=name, share=share), encoding="utf-8")
    return path


def refused(*paths: Path) -> str:
    with pytest.raises(LimbeckError) as caught:
        load_plugins(paths)
    return str(caught.value)


def test_a_recipe_names_plugins_relative_to_itself(tmp_path, monkeypatch):
    write(tmp_path)
    more = write(tmp_path, "other", "more.py")
    file = tmp_path / "own.yaml"
    file.write_text(
        "method: own\nplugins: own.py\nobjectives:\n  gap: {compare: gap, weight: 1/2}\n"
        "  other: {compare: other}\n"
    )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    recipe = Recipe.load(file, plugins=["../more.py"])
    assert recipe.plugins == [str(tmp_path / "own.py"), str(more)]
    assert recipe.objectives["gap"].weight == 0.5
    again = tmp_path / "elsewhere" / "written.yaml"
    again.write_text(recipe.to_yaml(), encoding="utf-8")
    assert Recipe.load(again) == recipe


def test_a_file_is_executed_once_and_again_when_it_has_changed(tmp_path):
    path = write(tmp_path)
    (first,) = load_plugins([path])
    known = OBJECTIVES.get("gap")
    assert load_plugins([path]) == [first] and OBJECTIVES.get("gap") is known
    write(tmp_path, share=2.0)
    (second,) = load_plugins([path])
    assert second.checksum != first.checksum and OBJECTIVES.get("gap") is not known


def test_what_cannot_be_loaded_is_said_together(tmp_path):
    broken, idle, text = tmp_path / "broken.py", tmp_path / "idle.py", tmp_path / "text.txt"
    broken.write_text("import limbeck\n\nlimbeck.nothing_there\n")
    idle.write_text("VALUE = 1\n")
    text.write_text("")
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f(:\n")
    found = refused(broken, idle, text, tmp_path / "gone.py", wrong)
    assert "broken.py line 3 fails: AttributeError" in found
    assert "idle.py registers nothing" in found
    assert "text.txt is no file of Python" in found
    assert "no file" in found and "gone.py" in found
    assert "wrong.py line 1 fails: SyntaxError" in found


def test_a_taken_name_is_refused_with_both_places(tmp_path):
    found = refused(write(tmp_path, "soft_kl"))
    assert "own.py: objective 'soft_kl'" in found and "SoftLabel has" in found
    (tmp_path / "a").mkdir()
    load_plugins([write(tmp_path, "gap")])
    assert "objective 'gap'" in refused(write(tmp_path / "a", "gap"))


def test_a_plugin_is_trained_with_recorded_and_held_to_its_checksum(tmp_path, monkeypatch):
    monkeypatch.setenv("LIMBECK_CACHE", str(tmp_path / "store"))
    path, out = write(tmp_path), tmp_path / "run"
    teacher = tiny.save(tiny.knowing_teacher(2), tmp_path / "teacher")
    settings = {
        "teacher": str(teacher),
        "task": "reviews",
        "data": str(tiny.write_csv(tmp_path / "reviews.csv", 60)),
        "text_columns": ["review"],
        "label_column": "verdict",
        "max_length": 24,
        "epochs": 1,
        "student.layers": 1,
        "plugins": [str(path)],
        "objectives.gap.compare": "gap",
    }
    distill("kd", out=out, report=False, **settings)
    record = json.loads((out / "record.json").read_text())
    assert record["recipe"]["plugins"] == [str(path)]
    digest = record["execution"]["read"][f"plugin {path}"]
    assert digest == plugins.checksum_of(path)
    # The same file: nothing to do.
    assert distill("kd", out=out, report=False, **settings).record.status == "finished"
    write(tmp_path, share=3.0)
    with pytest.raises(LimbeckError, match=r"with other plugin .*own\.py"):
        distill("kd", out=out, report=False, **settings)
    # Whoever only looks at a run executes nothing of it.
    path.write_text("raise SystemExit('executed')\n")
    del OBJECTIVES._known["gap"]
    assert evaluate(out)["primary"] == Record.load(out).scores["dev"]["primary"]
    ran = CliRunner().invoke(app, ["table", str(out)])
    assert ran.exit_code == 0, ran.output


def test_methods_lists_what_a_plugin_has(tmp_path):
    path = str(write(tmp_path, "gap-listed"))
    listed = CliRunner().invoke(app, ["methods", "--plugin", path])
    assert "gap-listed" in listed.output and "The mean distance of logits." in listed.output
    shown = CliRunner().invoke(app, ["methods", "gap-listed", "--plugin", path])
    assert shown.exit_code == 0 and "weight in the sum" in shown.output
    wrong = CliRunner().invoke(app, ["methods", "gap-lsted", "--plugin", path])
    assert wrong.exit_code == 2 and "did you mean 'gap-listed'?" in wrong.output


@pytest.mark.parametrize("code", [GAP.format(name="packed", share=1), "1 / 0", "VALUE = 1"])
def test_installed_packages_are_asked_once_for_a_name_that_nobody_knows(
    tmp_path, monkeypatch, code
):
    (tmp_path / "packed_losses.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "packed_losses", raising=False)
    entry = EntryPoint("losses", "packed_losses", registry.GROUP)
    asked = []
    monkeypatch.setattr(registry, "entry_points", lambda group: asked.append(group) or [entry])
    monkeypatch.setattr(registry, "_looked_for_packages", False)
    assert "soft_kl" in OBJECTIVES and asked == []
    if "class" in code:
        assert Recipe.load("kd", **{"objectives.p.compare": "packed"}).objectives["p"]
        assert "unheard" not in OBJECTIVES and asked == [registry.GROUP]
    else:
        with pytest.raises(LimbeckError, match="packed_losses of package packed_losses"):
            Recipe.load("kd", **{"objectives.p.compare": "packed"})
