"""No file of a run changes without a word: not its record, not its answers, and no part of its student."""

from __future__ import annotations

import json
import logging
import random
import shutil
from pathlib import Path

import pytest
from test_output_folder import contents, recipe_of

import tiny_runs as tiny
from limbeck.data import load_task, rows_fingerprint
from limbeck.preflight.score_checks import recorded_scores
from limbeck.records import Record
from limbeck.run import distill
from limbeck.run.earlier_run import EarlierRun
from limbeck.run.run_folder import RunFolder
from limbeck.run.several_teachers import pretrained_form
from limbeck.students import load_model
from limbeck.support.errors import LimbeckError

OWN = {"text_columns": ["review"], "label_column": "verdict"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    tiny.save(tiny.knowing_teacher(3), folder / "teacher")
    tiny.save(tiny.bert(2), folder / "start")
    (folder / "rows").mkdir()
    tiny.write_csv(folder / "rows" / "train.csv", 40)
    distill(recipe_of(folder), folder / "run", report=False)
    return folder


@pytest.fixture
def copied(place, tmp_path) -> Path:
    return Path(shutil.copytree(place / "run", tmp_path / "copy"))


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_no_bit_of_a_record_changes_what_it_says(place, tmp_path):
    path = shutil.copy(place / "run" / "record.json", tmp_path)
    sound, content = Record.load(path), Path(path).read_bytes()
    for bit in random.Random(1).sample(range(len(content) * 8), 400):
        Path(path).write_bytes(content)
        flip(Path(path), bit)
        try:
            found = Record.load(path)
        except LimbeckError:
            continue
        # All that may go is the name of the checksum.
        known = found.model_dump()
        assert {key: known[key] for key in sound.model_dump()} == sound.model_dump(), bit


def test_an_edited_record_is_refused_with_the_way_to_use_it(copied):
    path = copied / "record.json"
    content = json.loads(path.read_text())
    content["scores"]["dev"]["accuracy"] += 1
    path.write_text(json.dumps(content))
    with pytest.raises(LimbeckError, match="damaged, or was edited") as caught:
        Record.load(copied)
    assert "'checksum'" in caught.value.problems[0].fix
    del content["checksum"]
    path.write_text(json.dumps(content))
    assert Record.load(copied).scores == content["scores"]


def test_how_a_record_is_set_out_does_not_matter(copied):
    path = copied / "record.json"
    before = Record.load(copied)
    path.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    assert Record.load(copied).model_dump() == before.model_dump()
    Record.load(copied).save(copied)
    assert Record.load(copied).model_dump() == before.model_dump()


@pytest.mark.slow
def test_a_finished_run_with_a_damaged_record_is_trained_again_and_says_so(place, copied, caplog):
    path = copied / "record.json"
    path.write_text(path.read_text().replace('"seed": 42', '"seed": 43'))
    with caplog.at_level(logging.WARNING, "limbeck"):
        distill(recipe_of(place), copied, report=False)
    assert "record.json is damaged: the run is trained again" in caplog.text
    assert Record.load(copied).seed == 42
    weights = "student/model.safetensors"
    assert (copied / weights).read_bytes() == (place / "run" / weights).read_bytes()


@pytest.mark.slow
def test_a_stopped_run_loses_no_step_with_its_record(place, tmp_path, monkeypatch, caplog):
    class Killed(BaseException):
        pass

    def die(self, *where):
        raise Killed

    folder, recipe = tmp_path / "run", recipe_of(place, checkpoint_steps=1)
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "ship", die)
        with pytest.raises(Killed):
            distill(recipe, folder, report=False)
    seals = {seal: seal.stat().st_mtime_ns for seal in folder.rglob("checksums.json")}
    assert seals
    (folder / "record.json").write_text("{")
    monkeypatch.setattr(RunFolder, "remove_checkpoints", lambda self: None)
    with caplog.at_level(logging.WARNING, "limbeck"):
        distill(recipe, folder, report=False)
    assert "record.json is damaged: the run continues" in caplog.text
    assert {seal: seal.stat().st_mtime_ns for seal in folder.rglob("checksums.json")} == seals
    name = "student/model.safetensors"
    assert contents(folder)[name] == contents(place / "run")[name]


def test_damaged_answers_are_not_finished(place, copied, caplog):
    flip(copied / "predictions.json", 100)
    with caplog.at_level(logging.WARNING, "limbeck"):
        assert EarlierRun(RunFolder(copied), recipe_of(place)).finished() is None
    assert "predictions.json" in caplog.text and "trained again" in caplog.text


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_no_damaged_part_of_a_student_teaches(copied, name):
    """A bit in the configuration or the vocabulary changes answers as one in the weights does."""
    path = copied / "student" / name
    path.write_text(path.read_text() + " ")
    with pytest.raises(LimbeckError, match=f"student/{name} changed since the run wrote it"):
        load_model(copied)


def test_a_damaged_record_says_nothing_of_a_teacher(place, copied):
    """Its score is measured, and what it was before it was fine-tuned is not guessed."""
    task, rows = load_task("reviews", place / "rows" / "train.csv", **OWN)
    rows = rows_fingerprint(task, rows["dev"])
    asked = {task.dev_splits[0]: rows}
    (known,) = recorded_scores(copied, task, asked)[0].values()
    pretrained_form(str(copied))
    path = copied / "record.json"
    text = path.read_text()
    path.write_text(text.replace(f'"primary": {known["primary"]}', '"primary": 99.0'))
    assert path.read_text() != text
    assert recorded_scores(copied, task, asked) is None
    with pytest.raises(LimbeckError, match="damaged, or was edited"):
        pretrained_form(str(copied))


# ---- what a stopped run reads ----


@pytest.fixture
def stopped(place, tmp_path, monkeypatch):
    """A place of its own with a run that has checkpoints and no end."""
    here = Path(shutil.copytree(place, tmp_path / "place"))

    class Killed(BaseException):
        pass

    def die(self, *where):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "ship", die)
        with pytest.raises(Killed):
            distill(recipe_of(here), here / "stopped", report=False)
    return here


def other_rows(here: Path) -> None:
    tiny.write_csv(here / "rows" / "train.csv", 44)


def other_teacher(here: Path) -> None:
    teacher = tiny.knowing_teacher(3)
    teacher.classifier.weight.data *= 2
    tiny.save(teacher, here / "teacher")


@pytest.mark.parametrize(
    ("change", "named"), [(other_rows, "training rows"), (other_teacher, "other teacher ")]
)
def test_no_run_goes_on_with_other_rows_or_another_teacher(stopped, change, named):
    before = contents(stopped / "stopped")
    change(stopped)
    with pytest.raises(LimbeckError, match=named) as caught:
        distill(recipe_of(stopped), stopped / "stopped", report=False)
    assert "began with" in str(caught.value) and "--out" in caught.value.problems[0].fix
    assert contents(stopped / "stopped") == before


@pytest.mark.slow
def test_a_run_without_a_checkpoint_takes_what_is_there_now(stopped):
    shutil.rmtree(stopped / "stopped" / "checkpoints")
    other_teacher(stopped)
    distill(recipe_of(stopped), stopped / "stopped", report=False)
    distill(recipe_of(stopped), stopped / "anew", report=False)
    name = "student/model.safetensors"
    assert contents(stopped / "stopped")[name] == contents(stopped / "anew")[name]
