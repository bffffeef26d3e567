"""An output folder is never something the run reads, and nothing in it goes that the run did not write."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import tiny_runs as tiny
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.grid import cells_of
from limbeck.run.inputs import refuse_inputs
from limbeck.run.run_folder import RunFolder, default_folder
from limbeck.support.errors import LimbeckError
from limbeck.support.manifest import NAME, Manifest


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A teacher's checkpoint, a run, a start and rows."""
    folder = tmp_path_factory.mktemp("place")
    tiny.save(tiny.knowing_teacher(3), folder / "teacher")
    tiny.save(tiny.bert(2), folder / "start")
    (folder / "rows").mkdir()
    tiny.write_csv(folder / "rows" / "train.csv", 40)
    distill(recipe_of(folder, "finetune"), folder / "run", report=False)
    return folder


def test_words_that_stand_for_the_teacher_are_no_folders_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("teacher").mkdir()
    own = {"augment.replace_by": "nearest", "augment.model": "teacher", "student.init": "teacher"}
    refuse_inputs(Recipe.load("kd", teacher="elsewhere", **own), Path("teacher"))
    with pytest.raises(LimbeckError, match=r"teacher \(teacher\)"):
        refuse_inputs(Recipe.load("kd", teacher="teacher", **own), Path("teacher"))


@pytest.fixture
def copy(place, tmp_path) -> Path:
    """The place, to be played with."""
    return Path(shutil.copytree(place, tmp_path / "place"))


def recipe_of(place: Path, method: str = "kd", **changes) -> Recipe:
    settings = {
        "task": "reviews",
        "data": str(place / "rows" / "train.csv"),
        "text_columns": ["review"],
        "label_column": "verdict",
        "teacher": None if method == "finetune" else str(place / "teacher"),
        "student.init": str(place / "start"),
        "max_steps": 3,
        "lr": 1e-2,
        "batch_size": 4,
        "max_length": 24,
        "cache": "never",
    }
    return Recipe.load(method, **(settings | changes))


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# ---- what the run reads ----


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("out", "changes", "setting"),
    [
        ("teacher", {}, "teacher"),
        ("run", {"teacher": "run"}, "teacher"),
        ("run", {"teacher": "run/student"}, "teacher"),
        ("run", {"student.init": "run"}, "student.init"),
        ("start", {"student.tokenizer": "start", "student.init": "teacher"}, "student.tokenizer"),
        ("rows", {}, "data"),
        ("run/../run", {"teacher": "run"}, "teacher"),
        ("link", {"teacher": "run"}, "teacher"),
        ("run", {"teachers": ["teacher", "run"], "team": {"use": "ensemble"}}, "teachers"),
    ],
)
def test_what_the_run_reads_is_refused_and_stays(copy, out, changes, setting, overwrite):
    (copy / "link").symlink_to(copy / "run")
    given = {
        key: [str(copy / one) for one in value]
        if isinstance(value, list)
        else str(copy / value)
        if isinstance(value, str)
        else value
        for key, value in changes.items()
    }
    if "teachers" in given:
        given["teacher"] = None
    before = contents(copy)
    with pytest.raises(LimbeckError, match="what this run reads") as caught:
        distill(recipe_of(copy, **given), copy / out, overwrite=overwrite)
    assert f"({setting})" in str(caught.value)
    assert contents(copy) == before


def test_a_name_that_is_no_place_is_not_taken_for_one(tmp_path, monkeypatch):
    """`--data pocket --out pocket` names no folder of rows."""
    from limbeck.run.inputs import refuse_inputs

    monkeypatch.chdir(tmp_path)
    for name in ("pocket", "resnet-8", "mrpc"):
        (tmp_path / name).mkdir()
    recipe = Recipe.load("finetune", data="pocket", task="mrpc", **{"student.init": "pocket"})
    for name in ("pocket", "mrpc"):
        refuse_inputs(recipe, Path(name))


# ---- what the run did not write ----


def mine(folder: Path, *names: str) -> dict[str, bytes]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    return {name: name.encode() for name in names}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("recipe", ["method: kd", "title: apple pie", None])
def test_a_folder_with_some_recipe_keeps_all_it_has(copy, tmp_path, overwrite, recipe):
    folder = tmp_path / "cookbook"
    mine(
        folder,
        "students/anna.txt",
        "checkpoints/checkpoint-1/theirs.bin",
        "student/config.json",
        "report.html",
        "predictions.json",
        "tensorboard/events.out.tfevents.1",
    )
    if recipe is None:  # the very recipe that is to be run
        (folder / "recipe.yaml").write_text(recipe_of(copy).to_yaml())
    else:
        (folder / "recipe.yaml").write_text(recipe)
    before = contents(folder)
    with pytest.raises(LimbeckError) as caught:
        distill(recipe_of(copy), folder, overwrite=overwrite)
    assert "--out" in str(caught.value)
    assert contents(folder) == before


@pytest.mark.slow
def test_overwrite_keeps_what_a_user_put_into_a_run(copy):
    names = ("notes.txt", "student/mine.txt", "checkpoints/mine.txt", "students/mine/report.html")
    kept = mine(copy / "run", *names)
    first = contents(copy / "run")
    distill(recipe_of(copy, seed=9), copy / "run", overwrite=True, report=False)
    after = contents(copy / "run")
    assert {name: after[name] for name in kept} == kept
    assert after.keys() == first.keys()
    assert after["student/model.safetensors"] != first["student/model.safetensors"]


def test_a_run_can_be_started_in_a_folder_with_its_recipe_alone(copy, tmp_path):
    recipe = recipe_of(copy)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "recipe.yaml").write_text(recipe.to_yaml())
    assert distill(recipe, tmp_path / "new", report=False).record.status == "finished"


@pytest.mark.parametrize(
    "hostile", ["../precious", "/{}/precious", "link/precious", "sub/../../precious"]
)
def test_a_manifest_names_nothing_outside_its_folder(tmp_path, hostile):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("theirs")
    (tmp_path / "precious").write_text("theirs")
    run = tmp_path / "run"
    (run / "sub").mkdir(parents=True)
    (run / "link").symlink_to(tmp_path / "other")
    name = hostile.format(str(tmp_path).strip("/"))
    Manifest((name, "recipe.yaml"), {name: "0"}).write(run)
    (run / "recipe.yaml").write_text("")
    RunFolder(run).clear()
    assert (tmp_path / "precious").exists() and (tmp_path / "other" / "precious").exists()
    assert not (run / "recipe.yaml").exists() and not (run / NAME).exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"limbeck": 1}', '{"limbeck": 1, "names": 3}'])
def test_some_other_manifest_is_none_of_ours(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    assert Manifest.read(tmp_path) is None


def test_the_manifest_names_every_file_of_a_run(copy):
    run = copy / "run"
    manifest = Manifest.read(run)
    named = {path.relative_to(run).as_posix() for path in manifest.files(run)}
    # Of the card its own marker says whether it is the run's: a person may have written it.
    assert named | {NAME, ".limbeck-lock", "student/README.md"} == contents(run).keys()
    assert set(manifest.checksums) == {"predictions.json"} | {
        name
        for name in contents(run)
        if name.startswith("student/") and name != "student/README.md"
    }


# ---- names ----


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("../../x", "x-kd-6l-s42"),
        ("/etc/passwd", "etc-passwd-kd-6l-s42"),
        ("..", "kd-6l-s42"),
        ("a/b c", "a-b-c-kd-6l-s42"),
        ("my.task", "my.task-kd-6l-s42"),
    ],
)
def test_a_task_s_name_leads_nowhere(task, name):
    own = {"data": "x.csv", "text_columns": ["review"], "label_column": "verdict"}
    found = default_folder(Recipe.load("kd", task=task, **own, **{"student.layers": 6}))
    assert found.parent == Path("runs") and re.fullmatch(
        rf"{re.escape(name)}-[0-9a-f]{{6}}", found.name
    )


@pytest.mark.parametrize("model", ["..", ".", "../..", "/"])
def test_a_cell_s_name_is_a_folder_of_the_grid(model):
    (name,) = cells_of([model])
    assert name not in ("", ".", "..") and "/" not in name


def test_a_record_is_left_as_it_was_where_a_run_is_refused(copy):
    with pytest.raises(LimbeckError):
        distill(recipe_of(copy, teacher=str(copy / "run")), copy / "run", overwrite=True)
    assert json.loads((copy / "run" / "record.json").read_text())["status"] == "finished"
