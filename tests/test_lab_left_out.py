"""The core without the lab: it is imported, has no command of the lab, reads recipes and trains.

A process without it imports the whole of limbeck, which takes seconds: one shows all.
"""

from __future__ import annotations

import json

import pytest

import fresh_process
import tiny_runs as tiny

pytestmark = pytest.mark.slow

# A process in which `limbeck.lab` is not installed.
HIDDEN = """
import sys

class Hidden:
    def find_spec(name, path=None, target=None):
        if name == "limbeck.lab" or name.startswith("limbeck.lab."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden)
"""

BOTH = """
import contextlib, io, json, sys
from limbeck.data import DATA_READERS, load_task
from limbeck.support.registry import registered_since, registrations
before = registrations()
found = {"readers": [*DATA_READERS], "plugins": registered_since(before)}

import limbeck, typer
from limbeck import LimbeckError, Recipe
from limbeck.cli.app import app
found["commands"] = [*typer.main.get_command(app).commands]

asked = {"task": "mrpc", "data": "hub", "teacher": "runs/teacher"}
try:
    Recipe.load("kd", **asked, **{"augment.replace_by": "nearest", "augment.model": "teacher"})
    found["augment"] = None
except LimbeckError as error:
    found["augment"] = [error.problems[0].message, error.problems[0].fix]
recipe = Recipe.load("kd", **asked)
found["recipe"] = [recipe.method, recipe.task]

from limbeck.teachers.team import learned
try:
    found["team"] = learned("adaptive", 3, block=4).probabilities.tolist()
except LimbeckError as error:
    found["team"] = error.problems[0].message

from limbeck.students import NAMED_CNNS, TOY_MODELS
found["models"] = [*NAMED_CNNS, *TOY_MODELS]
"""

WITHOUT = """
try:
    load_task("sst2", "pocket")
except LimbeckError as error:
    found["pocket"] = error.problems[0].message

rows, teacher, out = sys.argv[1:]
limbeck.distill(
    "kd", out=out, data=rows, teacher=teacher, text_columns=["review"], label_column="verdict",
    **{"student.init": "teacher", "student.layers": 1}, epochs=1, max_length=24, batch_size=16, lr=0.01,
)

sys.argv = ["limbeck", "--help"]
with contextlib.redirect_stdout(io.StringIO()) as shown:
    try:
        app()
    except SystemExit as end:
        found["help ends"] = end.code or 0
found["help"] = shown.getvalue()
found["lab"] = [name for name in sys.modules if name.startswith("limbeck.lab.")]
"""

PRINT = "\nprint(json.dumps(found))"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tmp_path_factory.mktemp("lab_left_out") / "run"


@pytest.fixture(scope="module")
def without(run) -> dict:
    rows, teacher = run.parent / "reviews.csv", run.parent / "teacher"
    tiny.write_csv(rows, 60)
    tiny.save(tiny.knowing_teacher(), teacher)
    printed = fresh_process.printed_by(HIDDEN + BOTH + WITHOUT + PRINT, rows, teacher, run)
    return json.loads(printed.splitlines()[-1])


@pytest.fixture(scope="module")
def whole() -> dict:
    """In this process: what it has imported before changes nothing but who registered what."""
    names: dict = {}
    exec(BOTH, names)
    return names["found"]


def test_the_command_line_has_the_cores_commands_alone(without) -> None:
    assert without["commands"] == [
        *("methods", "finetune", "distill", "evaluate", "predict", "export", "label"),
        *("bench", "cascade", "shrink", "compress", "card", "push"),
        *("table", "compare", "team", "outputs"),
    ]
    assert without["help ends"] == 0
    assert "quickstart" not in without["help"]
    assert "Every command has its own --help" in without["help"]


def test_with_the_lab_its_commands_stand_where_they_stood(whole) -> None:
    assert whole["commands"][:2] == ["quickstart", "methods"]
    assert whole["commands"][-5:] == ["team", "study", "analyze", "submit", "outputs"]


def test_a_shipped_recipe_is_read(without) -> None:
    assert without["recipe"] == ["kd", "mrpc"]


def test_what_the_lab_has_is_unknown(without) -> None:
    assert without["models"] == without["lab"] == []
    assert without["pocket"] == "data: there is no such file or folder: pocket"


def test_a_recipe_that_augments_says_what_is_missing(without, whole) -> None:
    assert without["augment"] == [
        "augment: augmentation is part of limbeck.lab, which is not installed",
        "install all of limbeck, or leave augment out: augment=null",
    ]
    assert whole["augment"] is None


def test_a_team_that_learns_whom_to_sample_says_what_is_missing(without, whole) -> None:
    missing = "team.by: adaptive is part of limbeck.lab, which is not installed"
    assert without["team"] == missing
    assert whole["team"] == [1 / 3] * 3


def test_a_student_is_trained_and_its_page_written(without, run) -> None:
    assert without["lab"] == []
    assert json.loads((run / "record.json").read_text())["status"] == "finished"
    assert "<svg" in (run / "report.html").read_text()


@pytest.mark.slow
def test_what_ships_is_registered_by_no_plugin() -> None:
    found = json.loads(fresh_process.printed_by(BOTH + PRINT))
    assert {"pocket", "digits", "cifar"} <= {*found["readers"]}
    assert found["plugins"] == []
