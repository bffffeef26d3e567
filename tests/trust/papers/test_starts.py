"""Students of a paper's settings start where its students start, or say what has to be named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import tiny_runs as tiny
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill, train_grid
from limbeck.run.inputs import with_start
from limbeck.run.prepare import prepare
from limbeck.students import load_model
from limbeck.support.errors import LimbeckError


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A pretrained encoder of four layers, a teacher whose record says it came from there, rows."""
    folder = tmp_path_factory.mktemp("starts")
    tiny.save(tiny.bert(4, seed=5), folder / "pretrained")
    tiny.write_csv(folder / "reviews.csv", 60)
    teacher = tiny.save(tiny.knowing_teacher(4), folder / "teacher")
    remember(teacher, init=str(folder / "pretrained"))
    return folder


def remember(run: Path, **student) -> None:
    """A record beside the model, as a run leaves one."""
    recipe = {"method": "finetune", "student": student}
    record = Record(kind="finetune", method="finetune", task="reviews", data="d", seed=1)
    record.recipe, record.status = recipe, "finished"
    record.save(run)


def paper(place: Path, method: str, settings: str = "paper", **given) -> Recipe:
    fixed = {
        "task": "reviews",
        "data": str(place / "reviews.csv"),
        "text_columns": ["review"],
        "label_column": "verdict",
        "max_length": 24,
        "teacher": str(place / "teacher"),
        "settings": settings,
    }
    return Recipe.load(method, **(fixed | given))


def refused(recipe: Recipe, out: Path) -> str:
    with pytest.raises(LimbeckError) as caught:
        distill(recipe, out)
    assert not out.exists()
    assert all(problem.fix for problem in caught.value.problems)
    return str(caught.value)


@pytest.mark.parametrize(
    ("method", "layers"),
    [
        ("internal-kd", [2, 4]),  # the upper layer of each group of two
        ("alp-kd", [1, 2]),
        ("ckd-no", [1, 2]),
        ("cr-ild", [1, 2]),
        ("pkd-6", [1, 2]),
    ],
)
def test_layers_are_the_pretrained_encoders_not_the_teachers(place, method, layers):
    student = prepare(with_start(paper(place, method, **{"student.layers": 2}))).student
    pretrained = load_model(place / "pretrained").bert
    for own, layer in zip(student.bert.encoder.layer, layers, strict=True):
        theirs = pretrained.encoder.layer[layer - 1].state_dict()
        assert all(torch.equal(value, theirs[name]) for name, value in own.state_dict().items())
    words = student.bert.embeddings.word_embeddings.weight
    assert torch.equal(words, pretrained.embeddings.word_embeddings.weight)


def test_labels_alone_beside_a_teacher_start_from_the_checkpoint_that_it_came_from(place):
    """Not from a random toy, nor from layers that have seen more than the labels."""
    recipe = with_start(paper(place, "finetune", "quick", **{"student.layers": 2}))
    student = prepare(recipe).student
    pretrained = load_model(place / "pretrained").bert
    assert student.config.num_hidden_layers == 2
    kept = pretrained.encoder.layer[1::2]  # the last layer is kept, as the class is read there
    for own, theirs in zip(student.bert.encoder.layer, kept, strict=True):
        wanted = theirs.state_dict()
        assert all(torch.equal(value, wanted[name]) for name, value in own.state_dict().items())


def test_labels_alone_need_a_model_except_on_generated_rows(place, tmp_path):
    own = paper(place, "finetune", "quick", teacher=None)
    assert "model: none is given" in refused(own, tmp_path / "run")
    assert Recipe.load("finetune", task="rte", data="pocket").student.init == "pocket"
    named = Recipe.load("finetune", task="rte", data="pocket", **{"student.init": "a/folder"})
    assert named.student.init == "a/folder"


def test_quick_settings_start_from_the_fine_tuned_teacher(place):
    recipe = paper(place, "alp-kd", "quick", **{"student.layers": 2, "student.pick": "first"})
    teacher = load_model(place / "teacher").bert
    own = prepare(with_start(recipe)).student.bert.encoder.layer[0]
    theirs = teacher.encoder.layer[0].state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in own.state_dict().items())


def test_a_named_checkpoint_wins_and_keeps_the_papers_choice_of_layers(place):
    given = {"student.layers": 2, "student.init": str(place / "teacher")}
    recipe = with_start(paper(place, "internal-kd", **given))
    assert (recipe.student.init, recipe.student.pick) == (str(place / "teacher"), "upper")


def test_the_teachers_tokenizer_of_then_comes_along(place, tmp_path):
    teacher = shutil.copytree(place / "teacher", tmp_path / "teacher")
    remember(teacher, init=str(place / "pretrained"), tokenizer=str(place / "teacher"))
    recipe = with_start(paper(place, "alp-kd", teacher=str(teacher)))
    assert recipe.student.tokenizer == str(place / "teacher")


@pytest.mark.parametrize(
    ("student", "reason"),
    [
        (None, "has no record of a run"),
        ({"init": "pocket"}, "started from random weights"),
        ({"init": "bert-2-128-2:random"}, "started from random weights"),
        ({"init": "resnet-20"}, "started from random weights"),
        ({"init": "teacher"}, "started from a teacher of its own"),
        ({"init": "./gone/model"}, "that is gone"),
        ({"init": "google-bert/bert-base-uncased", "layers": 6}, "has only some layers of"),
        ({"start": "?"}, "does not name it"),
    ],
)
def test_an_origin_that_is_not_known_is_asked_for(place, tmp_path, student, reason):
    teacher = shutil.copytree(place / "teacher", tmp_path / "teacher")
    (teacher / "record.json").unlink()
    if student is not None:
        remember(teacher, **student)
    said = refused(paper(place, "alp-kd", teacher=str(teacher)), tmp_path / "run")
    assert "student.init: pretrained" in said
    assert reason in said
    assert "--student" in said


def test_what_the_paper_started_from_is_named_where_no_teacher_leads_there(place, tmp_path):
    said = refused(paper(place, "rail-kd-l"), tmp_path / "run")
    assert "student.init: distilled" in said
    assert "distilbert/distilbert-base-uncased" in said
    assert "--student" in said
    alone = refused(paper(place, "finetune", "internal-kd", teacher=None), tmp_path / "run")
    assert "model: none is given" in alone and "--model" in alone


def test_it_is_said_together_with_what_else_is_missing(place, tmp_path):
    said = refused(paper(place, "rail-kd-l", teacher=None), tmp_path / "run")
    assert "student.init: distilled" in said
    assert "teacher: method rail-kd-l learns from one" in said


@pytest.fixture(scope="module")
def run(place, tmp_path_factory):
    recipe = paper(place, "internal-kd-soft", epochs=1, **{"student.layers": 2})
    return recipe, distill(recipe, tmp_path_factory.mktemp("runs") / "run", report=False)


def test_a_run_says_which_settings_it_used_and_what_it_had_otherwise(run, place):
    _, result = run
    written = Recipe.load(result.path / "recipe.yaml")
    assert written.settings == "paper"
    assert written.student.init == str(place / "pretrained")
    record = Record.load(result.path)
    assert record.settings == "paper"
    assert sorted(record.departures) == ["epochs", "max_length"]


def test_the_same_recipe_again_is_the_same_run(run, monkeypatch):
    recipe, result = run
    before = (result.path / "student" / "model.safetensors").stat().st_mtime_ns
    assert distill(recipe, result.path, report=False).record.scores == result.scores
    assert (result.path / "student" / "model.safetensors").stat().st_mtime_ns == before


def test_a_grid_finds_the_start_of_each_cell(place, tmp_path, monkeypatch):
    given = paper(place, "internal-kd-soft").model_dump(exclude_unset=True)
    keys = ("task", "data", "text_columns", "label_column", "max_length", "teacher", "settings")
    started = []

    def note(recipe, *args, **settings):
        started.append(recipe.student.init)
        raise LimbeckError("far enough", "")

    monkeypatch.setattr("limbeck.run.grid.distill", note)
    settings = {key: given[key] for key in keys}
    train_grid("internal-kd-soft", out=tmp_path, axes={"student.layers": [1, 2]}, **settings)
    assert started == [str(place / "pretrained")] * 2
