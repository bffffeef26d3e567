"""A teacher's recorded score counts for the rows it was measured on, and for no others."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import tiny_runs as tiny
from limbeck.data import load_task, rows_fingerprint
from limbeck.recipe import Recipe
from limbeck.run import distill
from limbeck.support.errors import LimbeckError
from limbeck.tables import build_table
from limbeck.tasks import get_task
from synthetic_records import a_run, a_teacher

OWN = {"text_columns": ["review"], "label_column": "verdict"}
WRONG = 12.5
"""What the teachers' records say: no number that they score here."""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Teachers that are right on every row, with records that say they are not."""
    folder = tmp_path_factory.mktemp("scores")
    tiny.write_csv(folder / "reviews.csv", 60)
    tiny.save(tiny.bert(1), folder / "start")
    task, rows = load_task("reviews", folder / "reviews.csv", **OWN)
    same = rows_fingerprint(task, rows["dev"])
    for name, known in (("same", {"dev": same}), ("other", {"dev": "0" * 16}), ("old", None)):
        tiny.save(tiny.knowing_teacher(4), folder / name / "student")
        scores = {"dev": dict.fromkeys(("accuracy", "f1", "matthews", "primary"), WRONG)}
        record = {"schema": 1, "task": "reviews", "scores": scores}
        record |= {} if known is None else {"examples": {"fingerprints": known}}
        (folder / name / "record.json").write_text(json.dumps(record))
    return folder


def recipe_of(place: Path, method: str, **changes) -> Recipe:
    given = {"task": "reviews", "data": str(place / "reviews.csv"), "max_steps": 1, **OWN}
    given |= {"student.init": str(place / "start"), "max_length": 24, "batch_size": 8}
    return Recipe.load(method, **(given | changes))


@pytest.mark.parametrize("name", ["other", "old"])
def test_a_teacher_is_scored_on_the_runs_rows(name, place, tmp_path):
    recipe = recipe_of(place, "kd", teacher=str(place / name))
    result = distill(recipe, out=tmp_path / "run", report=False)
    assert result.record.teacher.scores == {
        "dev": {"accuracy": 100.0, "f1": 100.0, "matthews": 100.0, "primary": 100.0}
    }
    # Against 12.5 the student would keep several times its teacher's score.
    kept = build_table([result.record]).rows[-1].facts["kept"].value
    assert kept == pytest.approx(result.scores["dev"]["primary"])


def test_a_score_of_the_same_rows_is_believed(place, tmp_path):
    """The teacher gives its layers alone, so that pre-flight does not ask whether it is good."""
    changes = {"student.init": "teacher", "student.layers": 1, "teacher": str(place / "same")}
    recipe = recipe_of(place, "finetune", **changes)
    record = distill(recipe, out=tmp_path / "run", report=False).record
    assert record.teacher.scores["dev"]["primary"] == WRONG


def test_preflight_believes_no_score_of_other_rows(place, tmp_path):
    """A score of 12.5 is no better than always giving one answer: of these rows it is refused."""
    distill(recipe_of(place, "kd", teacher=str(place / "other")), out=tmp_path / "a", report=False)
    with pytest.raises(LimbeckError, match=r"12\.5 .*no better than always predicting"):
        distill(
            recipe_of(place, "kd", teacher=str(place / "same")), out=tmp_path / "b", report=False
        )


@pytest.mark.slow
def test_a_teams_ranking_is_of_the_runs_rows(place, tmp_path):
    teachers = [str(place / "other"), str(place / "old")]
    recipe = recipe_of(place, "skd-teacher-rank", teachers=teachers)
    record = distill(recipe, out=tmp_path / "run", report=False).record
    assert [member.score for member in record.team.members] == [100.0, 100.0]


@pytest.mark.slow
def test_a_student_of_another_time_is_ranked_on_these_rows(place, tmp_path):
    """Students that were made before, when the file held other rows, are found again."""
    teachers = [str(place / "other"), str(place / "old")]
    changes = {"teachers": teachers, "team.student_epochs": 1}
    changes["team.student_runs"] = str(tmp_path / "students")
    record = distill(
        recipe_of(place, "skd-student-rank", **changes), out=tmp_path / "a", report=False
    ).record
    right = [member.student_score for member in record.team.members]
    for run in (tmp_path / "students").iterdir():
        stale = json.loads((run / "record.json").read_text())
        del stale["checksum"]
        stale["scores"]["dev"] = dict.fromkeys(stale["scores"]["dev"], WRONG)
        stale["examples"]["fingerprints"] = {"dev": "0" * 16}
        (run / "record.json").write_text(json.dumps(stale))
    again = distill(
        recipe_of(place, "skd-student-rank", **changes), out=tmp_path / "b", report=False
    ).record
    assert [member.student_score for member in again.team.members] == right


# Which rows


def test_rows_are_known_by_texts_and_labels_alone(tmp_path):
    """Not by names of files and columns; every text, label and their order count."""
    rows = [(f"text {number}", "yes" if number % 3 else "no") for number in range(8)]

    def of(rows, columns=("a", "b"), name="one.csv"):
        path = tmp_path / name
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([columns, *rows])
        own = {"text_columns": [columns[0]], "label_column": columns[1]}
        task, splits = load_task("x", path, for_training=False, **own)
        (split,) = splits.values()
        return rows_fingerprint(task, split)

    same = of(rows)
    assert of(rows, ("text", "label"), "two.csv") == same
    for changed in (
        rows[::-1],
        rows[:-1],
        [("text 0!", rows[0][1]), *rows[1:]],
        [(rows[0][0], "yes"), *rows[1:]],
    ):
        assert of(changed) != same


def test_an_image_is_known_by_its_content_wherever_it_lies(tmp_path):
    from PIL import Image

    task = get_task("cifar10")
    for home in ("a", "b"):
        for number, label in enumerate(("one", "two")):
            folder = tmp_path / home / "train" / label
            folder.mkdir(parents=True)
            for shade in range(12):
                colour = (shade, number, 7)
                Image.new("RGB", (4, 4), colour).save(folder / f"{shade:02}.png")
    prints = []
    for home in ("a", "b"):
        task, rows = load_task("x", tmp_path / home, kind="image")
        prints.append(rows_fingerprint(task, rows["dev"]))
    assert prints[0] == prints[1]
    for file in (tmp_path / "b").rglob("*.png"):
        Image.new("RGB", (4, 4), (9, 9, 9)).save(file)
    task, rows = load_task("x", tmp_path / "b", kind="image")
    assert rows_fingerprint(task, rows["dev"]) != prints[0]


# In tables


def test_a_run_without_a_teacher_is_held_against_one_of_its_own_rows():
    def table(rows: str):
        alone = a_run("finetune", 1, 45.0)
        alone.examples.fingerprints = {"dev": rows}
        taught = a_run("kd", 1, 81.0, teacher=a_teacher(90.0))
        found = build_table([alone, taught])
        shares = {row.label: row.facts["kept"].value for row in found.rows}
        return shares["finetune"], " ".join(found.notes)

    share, notes = table("5eed00000000c0de")
    assert share == pytest.approx(50.0) and "dev rows" not in notes
    share, notes = table("0ther00000000000")
    assert share is None
    assert "dev rows 200 #0ther000 (finetune); 200 #5eed0000 (kd)" in notes


def test_records_of_an_earlier_version_are_marked():
    old = a_run("kd", 1, 81.0, teacher=a_teacher(90.0))
    old.examples.fingerprints = {}
    notes = " ".join(build_table([old]).notes)
    assert "may be on other dev rows" in notes and "kd" in notes
    assert "other dev rows" not in " ".join(build_table([a_run("kd", 1, 81.0)]).notes)
