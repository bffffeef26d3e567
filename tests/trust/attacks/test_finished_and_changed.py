"""A finished run is what comes of its recipe only while its rows, its teachers and its start are what they were."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest
from test_output_folder import contents, recipe_of
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill, train_grid
from limbeck.run.inputs import checksums_of_inputs
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationTrainer


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    tiny.save(tiny.knowing_teacher(3), folder / "teacher")
    tiny.save(tiny.knowing_teacher(4), folder / "large")
    tiny.save(tiny.bert(2), folder / "start")
    (folder / "rows").mkdir()
    tiny.write_csv(folder / "rows" / "train.csv", 40)
    distill(recipe_of(folder), folder / "run", report=False)
    return folder


@pytest.fixture
def here(place, tmp_path, monkeypatch) -> Path:
    """The place under the very paths of the recipe, to be played with."""
    kept = Path(shutil.copytree(place, tmp_path / "kept", copy_function=shutil.copy2))
    yield place
    shutil.rmtree(place)
    shutil.copytree(kept, place, copy_function=shutil.copy2)


def other_rows(place: Path) -> None:
    tiny.write_csv(place / "rows" / "train.csv", 44)


def another_word(place: Path) -> None:
    """One word of one training row; as many rows, as many bytes."""
    path = place / "rows" / "train.csv"
    text = path.read_text()
    path.write_text(text.replace("slow", "long", 1))
    assert path.read_text() != text and len(path.read_text()) == len(text)


def other_teacher(place: Path) -> None:
    teacher = tiny.knowing_teacher(3)
    teacher.classifier.weight.data *= 2
    tiny.save(teacher, place / "teacher")


def other_start(place: Path) -> None:
    tiny.save(tiny.bert(2, seed=5), place / "start")


CHANGES = {
    "training rows": other_rows,
    "training row": another_word,
    "teacher": other_teacher,
    "student start": other_start,
}


@pytest.mark.parametrize("named", CHANGES)
def test_a_finished_run_says_what_changed_since(here, named):
    CHANGES[named](here)
    before = contents(here / "run")
    with pytest.raises(LimbeckError, match=named) as caught:
        distill(recipe_of(here), here / "run", report=False)
    problem = caught.value.problems[0]
    assert "has finished" in problem.message and "--overwrite" in problem.fix
    assert contents(here / "run") == before


@pytest.mark.slow
def test_what_did_not_change_is_not_named(here):
    other_teacher(here)
    with pytest.raises(LimbeckError) as caught:
        distill(recipe_of(here), here / "run", report=False)
    assert "rows" not in str(caught.value.problems[0].message)
    assert "start" not in str(caught.value.problems[0].message)


@pytest.mark.slow
def test_the_fix_that_is_named_mends_it(here):
    other_teacher(here)
    distill(recipe_of(here), here / "run", report=False, overwrite=True)
    distill(recipe_of(here), here / "anew", report=False)
    name = "student/model.safetensors"
    assert contents(here / "run")[name] == contents(here / "anew")[name]
    distill(recipe_of(here), here / "run", report=False)  # and now it is finished


def test_an_older_time_hides_no_change(here):
    """As a copy that keeps times has it."""
    file = here / "teacher" / "model.safetensors"
    times = file.stat()
    other_teacher(here)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(LimbeckError, match="teacher"):
        distill(recipe_of(here), here / "run", report=False)


def test_the_command_line_says_it_too(here):
    other_teacher(here)
    recipe = here / "recipe.yaml"
    recipe.write_text(recipe_of(here).to_yaml())
    ended = CliRunner().invoke(app, ["distill", str(recipe), "--out", str(here / "run")])
    assert ended.exit_code == 2
    assert "teacher" in ended.output and "--overwrite" in ended.output


def refuse_training(monkeypatch) -> None:
    def refuse(*args, **kwargs):
        raise AssertionError("trained again")

    monkeypatch.setattr(DistillationTrainer, "__init__", refuse)


@pytest.mark.slow
def test_the_same_rows_and_weights_in_other_files_are_the_same(here, monkeypatch):
    """Times, quotes, notes beside the weights: nothing that a run reads."""
    (here / "teacher" / "README.md").write_text("a card")
    for path in (here / "teacher").iterdir():
        os.utime(path)
    rows = here / "rows" / "train.csv"
    header, *lines = rows.read_text().splitlines()
    quoted = [",".join(f'"{field}"' for field in line.split(",")) for line in lines]
    rows.write_text("\n".join([header, *quoted]) + "\n")
    refuse_training(monkeypatch)
    distill(recipe_of(here), here / "run", report=False)


def test_a_teacher_that_is_gone_is_no_change_and_is_said(here, monkeypatch, caplog):
    shutil.rmtree(here / "teacher")
    refuse_training(monkeypatch)
    with caplog.at_level(logging.WARNING, "limbeck"):
        done = distill(recipe_of(here), here / "run", report=False)
    assert done.record.status == "finished"
    assert "teacher" in caplog.text and "not there" in caplog.text


def test_a_record_without_checksums_of_files_is_compared_by_what_it_has(here, monkeypatch):
    record = Record.load(here / "run")
    record.execution.files = {}
    record.save(here / "run")
    with monkeypatch.context() as patch:
        refuse_training(patch)
        distill(recipe_of(here), here / "run", report=False)
    other_teacher(here)
    with pytest.raises(LimbeckError, match="teacher"):
        distill(recipe_of(here), here / "run", report=False)


@pytest.mark.parametrize(
    ("method", "inside", "one"),
    [
        ("takd", "assistants", "01-teacher"),
        ("skd-student-rank", "students", "large"),
    ],
)
@pytest.mark.slow
def test_runs_inside_a_run_are_no_exception(here, method, inside, one):
    teachers = {"teacher": None, "teachers": [str(here / "large"), str(here / "teacher")]}
    recipe = recipe_of(here, method, **teachers)
    distill(recipe, here / "team", report=False)
    distill(recipe, here / "team", report=False)
    large = tiny.knowing_teacher(4)
    large.classifier.weight.data *= 2
    tiny.save(large, here / "large")
    with pytest.raises(LimbeckError, match="large"):
        distill(recipe, here / "team", report=False)
    # A run that stopped before its own training finds the one inside it, which is as old.
    shutil.copytree(here / "team" / inside, here / "again" / inside)
    for name in ("manifest.json", "recipe.yaml"):
        shutil.copy(here / "team" / name, here / "again")
    part = here / "again" / inside / one
    with pytest.raises(LimbeckError, match=str(part)) as caught:
        distill(recipe, here / "again", report=False)
    assert f"remove {part}" in caught.value.problems[0].fix
    shutil.rmtree(part)
    distill(recipe, here / "again", report=False)


@pytest.mark.slow
def test_a_grid_trains_changed_cells_again_where_it_is_asked_to(here):
    settings = recipe_of(here, "finetune").model_dump(include={"task", "data", "text_columns"})
    settings |= {"label_column": "verdict", "max_steps": 1, "max_length": 24, "cache": "never"}
    models = [str(here / "start")]
    grid = {"out": here / "grid", "models": models, "axes": {"seed": [1, 2]}, **settings}
    train_grid(**grid)
    other_rows(here)
    with pytest.raises(LimbeckError, match="training rows"):
        train_grid(**grid)
    members = train_grid(**grid, overwrite=True)
    assert [member.record.examples.train for member in members] == [40, 40]


def test_folders_of_rows_may_lead_in_circles(tmp_path):
    """Hidden folders and runs beside the rows are none of them."""
    (tmp_path / "rows" / "train").mkdir(parents=True)
    (tmp_path / "rows" / "train" / "again").symlink_to(tmp_path / "rows")
    (tmp_path / "rows" / "train" / "a.csv").write_text("x")
    recipe = Recipe.load("finetune", task="mrpc", data=str(tmp_path / "rows"))
    (before,) = checksums_of_inputs(recipe).values()
    for name in (".git", "run"):
        (tmp_path / "rows" / name).mkdir()
        (tmp_path / "rows" / name / "manifest.json").write_text("{}")
    assert [*checksums_of_inputs(recipe).values()] == [before]
    (tmp_path / "rows" / "train" / "a.csv").write_text("y")
    assert [*checksums_of_inputs(recipe).values()] != [before]
