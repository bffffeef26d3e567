"""Classes of a user's own: the teacher's names in the teacher's order, or the order that is given."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.data import Labelling, load_task
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.run.prepare import prepare
from limbeck.run.rows import load_rows
from limbeck.scoring import evaluate
from limbeck.support.errors import LimbeckError


def knowing(names: tuple[str, str], *, praise: int):
    """A right teacher whose outputs have these names; output `praise` is the one of praise."""
    teacher = tiny.knowing_teacher(4)
    with torch.no_grad():
        if praise == 0:
            teacher.classifier.weight.copy_(teacher.classifier.weight.flip(0))
    teacher.config.id2label = dict(enumerate(names))
    teacher.config.label2id = {name: number for number, name in enumerate(names)}
    return teacher


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    tiny.write_csv(folder / "reviews.csv", 60)
    lines = (folder / "reviews.csv").read_text().replace("positive", "0").replace("negative", "1")
    (folder / "numbered.csv").write_text(lines)
    tiny.save(tiny.bert(2), folder / "start")
    tiny.save(knowing(("Positive", "Negative"), praise=0), folder / "reversed")
    tiny.save(knowing(("good", "bad"), praise=0), folder / "good")
    return folder


def recipe(place: Path, method: str = "kd", data: str = "reviews", **changes) -> Recipe:
    settings = {
        "task": "own",
        "data": str(place / f"{data}.csv"),
        "text_columns": ["review"],
        "label_column": "verdict",
        "student.init": str(place / "start"),
        "epochs": 1,
        "batch_size": 8,
        "max_length": 24,
        "lr": 1e-2,
    }
    return Recipe.load(method, **(settings | changes))


@pytest.mark.slow
def test_a_teacher_whose_classes_are_in_another_order_teaches(place, tmp_path):
    teacher = shutil.copytree(place / "reversed", tmp_path / "teacher")
    made = recipe(place, teacher=str(teacher))
    task, rows = load_rows(made)
    assert task.labels == ("positive", "negative")  # its order, in the file's spelling
    assert all(("good" in r["sentence"]) == (r["label"] == 0) for r in rows["train"])
    run = distill(made, tmp_path / "run", report=False)
    student = json.loads((run.path / "student" / "config.json").read_text())
    assert student["id2label"] == {"0": "Positive", "1": "Negative"}
    # The order outlives the teacher.
    shutil.rmtree(teacher)
    assert evaluate(run.path) == pytest.approx(run.scores["dev"])
    assert evaluate(run.path, data=made.data, text_columns=["review"], label_column="verdict")


def test_numbered_classes_have_the_teachers_names(place):
    made = recipe(place, data="numbered", teacher=str(place / "good"))
    prepared = prepare(made)
    assert prepared.task.labels == ("0", "1")
    assert prepared.student.config.id2label == {0: "good", 1: "bad"}
    assert prepared.student.config.label2id == {"good": 0, "bad": 1}


@pytest.mark.parametrize("init", ["good", "teacher", "numbered"])
def test_a_head_under_either_name_is_kept(place, init):
    """The start's own head: of the teacher, of another model of its names, of one with the file's."""
    if init == "numbered":
        tiny.save(knowing(("0", "1"), praise=0), place / "numbered")
    start = init if init == "teacher" else str(place / init)
    made = recipe(place, data="numbered", teacher=str(place / "good"), **{"student.init": start})
    student = prepare(made).student
    head = knowing(("good", "bad"), praise=0).classifier.weight
    assert torch.equal(student.classifier.weight, head)


def test_the_order_can_be_given(place, tmp_path):
    made = recipe(place, "finetune", classes=["positive", "negative"])
    assert prepare(made).student.config.id2label == {0: "positive", 1: "negative"}
    _, rows = load_rows(made)
    assert all(("good" in r["sentence"]) == (r["label"] == 0) for r in rows["train"])
    # The word of the user goes before the teacher's.
    made = recipe(place, teacher=str(place / "reversed"), classes=["negative", "positive"])
    assert load_rows(made)[0].labels == ("negative", "positive")
    with pytest.raises(LimbeckError, match="another order"):
        distill(made, tmp_path / "run")


def test_ids_can_be_given_names(place):
    made = recipe(place, "finetune", data="numbered", classes=["good", "bad"])
    task, rows = load_rows(made)
    assert task.labels == ("good", "bad")
    assert all(("good" in r["sentence"]) == (r["label"] == 0) for r in rows["train"])


def test_the_order_is_a_flag(place, tmp_path):
    line = ["finetune", "--model", place / "start", "--data", place / "reviews.csv"]
    line += [
        "--text-columns",
        "review",
        "--label-column",
        "verdict",
        "--max-steps",
        "1",
        "--max-length",
        "24",
    ]
    line += ["--task", "own", "--classes", "positive", "negative", "--out", tmp_path / "run"]
    result = CliRunner().invoke(app, list(map(str, line)))
    assert result.exit_code == 0, result.output
    student = json.loads((tmp_path / "run" / "student" / "config.json").read_text())
    assert student["id2label"] == {"0": "positive", "1": "negative"}


def test_a_class_that_few_rows_have_may_be_missing_from_them(tmp_path):
    """low, medium, high: the train rows hold two of the teacher's three."""
    path = tmp_path / "own.csv"
    path.write_text("q,y\n" + "".join(f"t{n},{('low', 'high')[n % 2]}\n" for n in range(20)))
    known = Labelling(teacher=("low", "medium", "high"))
    task, splits = load_task(None, path, text_columns=["q"], label_column="y", labelling=known)
    assert task.labels == ("low", "medium", "high")
    assert set(splits["train"]["label"][:]) == {0, 2}


def test_tags_follow_the_teacher_too(tmp_path):
    path = tmp_path / "own.conll"
    path.write_text("\n\n".join("Ann B-PER\nin O\nRome B-LOC" for _ in range(20)) + "\n")
    known = Labelling(teacher=("O", "B-PER", "I-PER", "B-LOC"))
    task, splits = load_task(None, path, kind="tokens", labelling=known)
    assert task.labels == known.teacher
    assert splits["train"][0]["tags"] == [1, 0, 3]
    given = Labelling(classes=("B-LOC", "B-PER", "O"))
    assert load_task(None, path, kind="tokens", labelling=given)[0].labels == given.classes


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["positive", "neutral"], "holds 'negative', which is not one of positive, neutral"),
        (["positive", "negative", "positive"], "named twice"),
    ],
)
def test_classes_that_do_not_fit(place, classes, message):
    with pytest.raises(LimbeckError, match=message):
        load_rows(recipe(place, "finetune", classes=classes))


def test_a_known_task_has_its_own_classes(place):
    with pytest.raises(LimbeckError, match="task 'sst2' is known and has the classes negative"):
        load_rows(Recipe.load("finetune", task="sst2", data="pocket", classes=["a", "b"]))
