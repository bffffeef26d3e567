"""The same command again, another one in its place, and what is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

import tiny_runs as tiny
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill
from limbeck.run.distill import plan_run
from limbeck.run.earlier_run import EarlierRun
from limbeck.run.run_folder import RunFolder
from limbeck.support.errors import LimbeckError
from limbeck.training import DistillationTrainer
from limbeck.training.callbacks import Display


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# ---- the same command again ----


def test_the_same_command_again_returns_at_once(finished, recipe, no_training):
    before = contents(finished.path)
    again = distill(recipe(), out=finished.path)
    assert again.record == finished.record
    assert contents(finished.path) == before


def test_another_recipe_does_not_touch_the_run(finished, recipe):
    before = contents(finished.path)
    with pytest.raises(LimbeckError, match=r"differ in lr, seed\)") as error:
        distill(recipe(lr=1e-3, seed=4), out=finished.path)
    assert "--overwrite" in str(error.value)
    assert contents(finished.path) == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"text_columns": ["reviews"]}, "no text column 'reviews'(.|\n)*did you mean 'review'"),
        ({"data": "nowhere.csv"}, "there is no such file or folder"),
        ({"teacher": "nobody/here", "student.init": "teacher"}, "nobody/here"),
        ({"student.layers": 9}, "9"),
    ],
)
def test_what_is_wrong_with_a_command_is_said_whatever_lies_in_its_folder(
    finished, recipe, changes, said
):
    """Not that another recipe's run lies there: the command could run nowhere."""
    before = contents(finished.path)
    with pytest.raises(LimbeckError, match=said) as error:
        distill(recipe("kd", **changes), out=finished.path)
    assert "another recipe" not in str(error.value)
    assert contents(finished.path) == before


def test_columns_that_nobody_named_stand_in_the_recipe(place, tmp_path):
    """So that the same command finds its run again, and every later one knows them."""
    rows = (place / "reviews.csv").read_text().replace("review,verdict", "text,label", 1)
    (tmp_path / "mine.csv").write_text(rows)
    mine = Recipe.load("finetune", data=str(tmp_path / "mine.csv"), **{"student.init": "x"})
    plan = plan_run(mine, tmp_path / "run")
    assert (plan.recipe.text_columns, plan.recipe.label_column) == (["text"], "label")
    assert plan.recipe.task == "mine"
    for given in (
        {"label_column": "label"},
        {"label_column": "label", "kind": "ordinal"},
        {"label_column": "label", "kind": "multi-label"},
        {"kind": "multi-label"},
    ):
        found = plan_run(mine.model_copy(update=given), tmp_path / "run").recipe
        assert (found.text_columns, found.label_column) == (["text"], given.get("label_column"))
    named = mine.model_copy(update={"text_columns": ["page"], "label_column": "label"})
    assert plan_run(named, tmp_path / "run").recipe.text_columns == ["page"]


def test_overwrite_replaces_the_run(copied, recipe):
    result = distill(recipe("finetune", max_steps=1), out=copied, overwrite=True, report=False)
    assert result.record.method == "finetune"
    assert yaml.safe_load((copied / "recipe.yaml").read_text())["method"] == "finetune"
    assert Record.load(copied).status == "finished"


def test_overwrite_keeps_the_run_until_the_next_can_start(copied, recipe):
    before = contents(copied)
    with pytest.raises(LimbeckError, match="select_by"):
        distill(recipe(select_by="f2"), out=copied, overwrite=True)
    assert contents(copied) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_refused(tmp_path, overwrite, recipe):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "theirs.bin").write_bytes(b"precious")
    (tmp_path / "record.json").write_text("{}")
    before = contents(tmp_path)
    with pytest.raises(LimbeckError, match="not empty and holds no limbeck run"):
        distill(recipe(), out=tmp_path, overwrite=overwrite)
    assert contents(tmp_path) == before


def test_an_empty_folder_will_do(tmp_path, recipe):
    folder = RunFolder(tmp_path)
    assert EarlierRun(folder, recipe()).finished() is None
    (tmp_path / ".recipe.yaml.abc.tmp").touch()  # killed while it wrote its first file
    assert EarlierRun(folder, recipe()).finished() is None


def test_a_folder_that_cannot_be_written_is_refused(tmp_path, recipe):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(LimbeckError, match="not a folder you may write to"):
        distill(recipe(), out=tmp_path / "file" / "run")
    (tmp_path / "locked").mkdir(mode=0o500)
    if not os.access(tmp_path / "locked", os.W_OK):  # the superuser may write anywhere
        with pytest.raises(LimbeckError, match="not a folder you may write to"):
            distill(recipe(), out=tmp_path / "locked" / "run")


def test_a_recipe_that_was_spoilt_is_another_one(copied, recipe):
    (copied / "recipe.yaml").write_text("method: [")
    with pytest.raises(LimbeckError, match="another recipe"):
        distill(recipe(), out=copied)


def test_a_run_killed_before_its_report_is_finished(finished, copied, recipe, pages):
    """The record says finished; the report is missing and the checkpoints still lie there."""
    (copied / "report.html").unlink()
    folder = RunFolder(copied)
    # Its report was deleted, nothing is lost.
    assert EarlierRun(folder, recipe()).finished() is not None
    folder.checkpoints.mkdir()
    assert EarlierRun(folder, recipe()).finished() is None
    again = distill(recipe(), out=copied)
    assert folder.report.is_file()
    assert not folder.checkpoints.exists()
    assert again.scores == finished.scores


def test_leftover_checkpoints_are_removed(copied, recipe, no_training):
    (copied / "checkpoints" / "checkpoint-7").mkdir(parents=True)
    distill(recipe(), out=copied)
    assert not (copied / "checkpoints").exists()


# ---- what goes wrong ----


@pytest.mark.slow
def test_a_failed_run_keeps_its_record_and_can_go_on(finished, tmp_path, monkeypatch, recipe):
    def fail(*args, **kwargs):
        raise LimbeckError("non-finite loss by step 9: soft", "lower lr")

    with monkeypatch.context() as patched:
        patched.setattr(DistillationTrainer, "predict", fail)
        with pytest.raises(LimbeckError, match="by step 9"):
            distill(recipe(), out=tmp_path / "run")
    record = Record.load(tmp_path / "run")
    assert record.status == "failed"
    assert "non-finite loss by step 9: soft" in record.error
    assert record.recipe == recipe().model_dump(mode="json")
    assert not (tmp_path / "run" / "student").exists()
    again = distill(recipe(), out=tmp_path / "run", report=False)
    assert again.record.status == "finished"
    assert again.record.error is None
    name = "student/model.safetensors"
    assert (again.path / name).read_bytes() == (finished.path / name).read_bytes()


def test_another_methods_recipe_differs_in_what_was_chosen(copied, recipe, no_training):
    """Not in the texts about it."""
    with pytest.raises(LimbeckError, match="they differ in method, ") as refused:
        distill(recipe("kd"), out=copied)
    assert not {"summary", "paper", "formula"} & {*re.findall(r"\w+", str(refused.value))}


def test_a_loss_that_is_no_number_fails_the_run(tmp_path, recipe, watch_training):
    watch_training(lambda trainer, inputs: trainer.student.classifier.bias.data.fill_(float("nan")))
    with pytest.raises(LimbeckError, match=r"non-finite|not finite"):
        distill(recipe(log_steps=1), out=tmp_path / "run")
    assert Record.load(tmp_path / "run").status == "failed"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": None, "data": "hub"}, "task: none is given"),
        ({"teacher": None}, "teacher: method rail-kd-l learns from one"),
        ({"teacher": None, "student.init": "fresh"}, r"student\.init: fresh needs a teacher"),
        ({"teacher": "nowhere/teacher"}, "nowhere"),
        ({"data": "nowhere.csv"}, "nowhere"),
        ({"label_column": "page number"}, "page number"),
        ({"select_by": "acuracy"}, r"unknown select_by 'acuracy'[\s\S]*did you mean 'accuracy'"),
        ({"train_rows": 1000}, "train_rows: 1000 of 54 training rows"),
        ({"max_length": 2000}, "2000"),
        (
            {"objectives.rail.mapping": {"kind": "explicit", "layers": {2: 9}}},
            "9",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_said_before_anything_is_written(tmp_path, changes, message, recipe):
    settings = dict(changes)
    given = recipe(**settings) if "objectives.rail.mapping" not in settings else None
    if given is None:
        plain = recipe().model_dump(mode="json")
        plain["objectives"]["rail"]["mapping"] = settings["objectives.rail.mapping"]
        given = Recipe.model_validate(plain)
    with pytest.raises(LimbeckError, match=message):
        distill(given, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_teacher_that_knows_nothing_is_said_before_anything_is_written(tmp_path, recipe):
    tiny.save(tiny.bert(4), tmp_path / "teacher")
    with pytest.raises(LimbeckError, match="teacher"):
        distill(recipe(teacher=str(tmp_path / "teacher")), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_terminal_is_given_back_whatever_happens(recipe, tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(Display, "close", lambda display: closed.append(display))

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(DistillationTrainer, "start_or_continue", interrupt)
    with pytest.raises(KeyboardInterrupt):
        distill(recipe(), out=tmp_path / "run")
    assert len(closed) == 1
    assert Record.load(tmp_path / "run").status == "running"


def test_every_key_that_an_older_version_did_not_write_has_its_default(recipe):
    from limbeck.run.earlier_run import _difference

    made = recipe("kd")
    written = made.model_dump(mode="json")
    defaults = type(made)(task="t", method="m").model_dump(mode="json")
    assert "unlabelled" in defaults
    older = {key: value for key, value in written.items() if value != defaults[key]}
    # But for one file's test rows: before there were none, and now a tenth is cut.
    assert _difference(older, made) == ["test_share"]
    assert _difference(older | {"test_share": None}, made) == []


def test_the_same_recipe_in_an_older_versions_words_is_no_other(recipe):
    from limbeck.run.earlier_run import _difference

    made = recipe("kd", classes=[0, 1])
    written = made.model_dump(mode="json")
    assert written["classes"] == ["0", "1"]
    assert _difference(written | {"classes": [0, 1]}, made) == []
    assert _difference(written | {"classes": [1, 0]}, made) == ["classes"]
    # What cannot be read as a recipe any more is held against it as it stands.
    assert _difference(written | {"classes": [0, 1], "epochs": "a few"}, made) == [
        "classes",
        "epochs",
    ]
