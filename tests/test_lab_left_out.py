"""The core without the lab: it is imported, has no command of the lab, reads recipes and trains."""

from __future__ import annotations

import json

import fresh_process
import tiny_runs as tiny

# A process in which `limbeck.lab` is not installed.
HIDDEN = """
import sys

class Hidden:
    def find_spec(name, path=None, target=None):
        if name == "limbeck.lab" or name.startswith("limbeck.lab."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden)
"""


def printed_without_lab(code: str, *arguments: object) -> str:
    return fresh_process.printed_by(HIDDEN + code, *arguments)


def test_the_command_line_has_the_cores_commands_alone() -> None:
    code = """
import limbeck, typer
from limbeck.cli.app import app
print(*typer.main.get_command(app).commands)
sys.argv = ["limbeck", "--help"]
try:
    app()
except SystemExit as end:
    assert not end.code
"""
    commands, _, shown = printed_without_lab(code).partition("\n")
    assert commands.split() == [
        *("methods", "finetune", "distill", "evaluate", "predict", "export", "label"),
        *("bench", "cascade", "card", "push", "table", "compare", "team", "outputs"),
    ]
    assert "quickstart" not in shown and "Every command has its own --help" in shown


def test_with_the_lab_its_commands_stand_where_they_stood() -> None:
    code = "import typer\nfrom limbeck.cli.app import app\nprint(*typer.main.get_command(app).commands)"
    commands = fresh_process.printed_by(code).split()
    assert commands[:2] == ["quickstart", "methods"]
    assert commands[-5:] == ["team", "study", "analyze", "submit", "outputs"]


def test_a_shipped_recipe_is_read() -> None:
    code = """
from limbeck import Recipe
recipe = Recipe.load("kd", task="mrpc", data="hub", teacher="runs/teacher")
print(recipe.method, recipe.task, [name for name in sys.modules if "limbeck.lab" == name[:11]])
"""
    assert printed_without_lab(code) == "kd mrpc []\n"


def test_what_the_lab_has_is_unknown() -> None:
    code = """
from limbeck import LimbeckError
from limbeck.data import load_task
from limbeck.students import NAMED_CNNS, TOY_MODELS
assert not [*NAMED_CNNS, *TOY_MODELS]
try:
    load_task("sst2", "pocket")
except LimbeckError as error:
    print(error.problems[0].message)
"""
    assert printed_without_lab(code) == "data: there is no such file or folder: pocket\n"


def test_a_recipe_that_augments_says_what_is_missing() -> None:
    code = """
from limbeck import LimbeckError, Recipe
asked = {"task": "mrpc", "data": "hub", "teacher": "runs/teacher", "augment.replace_by": "nearest"}
try:
    Recipe.load("kd", **asked, **{"augment.model": "teacher"})
except LimbeckError as error:
    print(error.problems[0].message, error.problems[0].fix, sep="; ")
"""
    assert printed_without_lab(code) == (
        "augment: what augments rows is part of limbeck.lab, which is not installed; "
        "install the whole of limbeck, or leave augment out: augment=null\n"
    )
    assert fresh_process.printed_by(code) == ""


def test_a_team_that_learns_whom_to_sample_says_what_is_missing() -> None:
    code = """
from limbeck import LimbeckError
from limbeck.teachers.team import learned
try:
    print(learned("adaptive", 3, block=4).probabilities.tolist())
except LimbeckError as error:
    print(error.problems[0].message)
"""
    missing = "team.by: adaptive is part of limbeck.lab, which is not installed\n"
    assert printed_without_lab(code) == missing
    third = "0.3333333333333333"
    assert fresh_process.printed_by(code) == f"[{third}, {third}, {third}]\n"


def test_a_student_is_trained_and_its_page_written(tmp_path) -> None:
    rows = tmp_path / "reviews.csv"
    tiny.write_csv(rows, 60)
    teacher = tmp_path / "teacher"
    tiny.save(tiny.knowing_teacher(), teacher)
    code = """
import limbeck
rows, teacher, out = sys.argv[1:]
limbeck.distill(
    "kd", out=out, data=rows, teacher=teacher, text_columns=["review"], label_column="verdict",
    **{"student.init": "teacher", "student.layers": 1}, epochs=1, max_length=24, batch_size=16, lr=0.01,
)
assert not [name for name in sys.modules if name.startswith("limbeck.lab.")]
"""
    printed_without_lab(code, rows, teacher, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "record.json").read_text())["status"] == "finished"
    assert "<svg" in (tmp_path / "run" / "report.html").read_text()


def test_what_ships_is_registered_by_no_plugin() -> None:
    code = """
from limbeck.data import DATA_READERS
from limbeck.support.registry import registered_since, registrations
before = registrations()
assert {"pocket", "digits", "cifar"} <= {*DATA_READERS}
print(registered_since(before))
"""
    assert fresh_process.printed_by(code) == "[]\n"
