"""A run's predictions of classes in its record, `evaluate`, `compare`, the page, the card and what is pushed."""

from __future__ import annotations

import json
import shutil

import pytest
from sklearn import metrics
from typer.testing import CliRunner

from card_runs import make_run
from limbeck.cards import CardSettings
from limbeck.cards.card import write_card
from limbeck.cards.push import push_files
from limbeck.cli.app import app
from limbeck.data import RowsAsked
from limbeck.records import Record
from limbeck.report import write_report
from limbeck.scoring import evaluate, evaluation_of
from limbeck.scoring.evaluation import compare_runs
from limbeck.support.errors import LimbeckError
from limbeck.support.plain import read_json

FRESH = {"student.init": "fresh"}  # a student that knows nothing disagrees with its teacher


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs that no test may change: two seeds on the same rows."""
    place = tmp_path_factory.mktemp("classes")
    return make_run(place, **FRESH), make_run(place, **FRESH, seed=2)


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made[0], tmp_path / made[0].name)


def predictions_of(run) -> dict:
    return read_json((run / "predictions.json").read_bytes(), "predictions.json")["dev"]


def text_of(one) -> str:
    (text,) = one.text.values()
    return text


def invoke(*words) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_record_has_what_scikit_learn_makes_of_the_predictions(made):
    record, kept = Record.load(made[0]), predictions_of(made[0])
    found = record.classification["dev"]
    assert found.student.macro_f1 == pytest.approx(
        100 * metrics.f1_score(kept["label"], kept["prediction"], average="macro")
    )
    assert found.student.accuracy == pytest.approx(record.scores["dev"]["accuracy"])
    assert found.teacher.accuracy == pytest.approx(record.teacher.scores["dev"]["accuracy"])
    assert all(sum(row) == pytest.approx(1, abs=2e-6) for row in kept["probabilities"])
    assert [row.index(max(row)) for row in kept["probabilities"]] == kept["prediction"]
    assert found.student.calibration_error is not None and len(found.teacher.reliability) == 15
    assert [part.coverage for part in found.student.coverage] == [0.5, 0.8]
    # The teacher is always right, so they disagree where the student is wrong.
    wrong = sum(a != b for a, b in zip(kept["prediction"], kept["label"], strict=True))
    assert wrong and len(found.disagreements) == min(wrong, 10)
    assert found.agreement == pytest.approx(100 - 100 * wrong / found.rows)
    assert text_of(found.disagreements[0])
    tests = record.row_tests["dev"]
    gap = record.scores["dev"]["primary"] - record.teacher.scores["dev"]["primary"]
    assert tests.difference.difference == pytest.approx(gap)
    assert (tests.mcnemar.only_first, tests.mcnemar.only_second) == (0, wrong)


def test_a_run_may_keep_no_texts(tmp_path):
    run = make_run(tmp_path, **FRESH, keep_texts=False)
    found = Record.load(run).classification["dev"]
    assert found.disagreements and all(one.text is None for one in found.disagreements)
    assert all(one.text is None for one in evaluation_of(run).classification.disagreements)


def test_evaluate_shows_what_the_run_recorded_of_its_teacher(run):
    record = Record.load(run)
    before = (run / "record.json").read_bytes()
    found = evaluation_of(run)
    assert found.classification == record.classification["dev"]
    assert found.row_tests == record.row_tests["dev"]
    assert evaluate(run) == found.scores == record.scores["dev"]
    bare = evaluation_of(run, texts=False).classification
    assert bare == record.classification["dev"].without_texts()
    assert (run / "record.json").read_bytes() == before


def test_evaluate_runs_a_teacher_that_is_named(run, made):
    teacher = made[0].parent / "teacher"
    found = evaluation_of(run, teacher=str(teacher))
    recorded = Record.load(run)
    assert found.classification.teacher.accuracy == recorded.classification["dev"].teacher.accuracy
    assert found.row_tests == recorded.row_tests["dev"]
    itself = evaluation_of(run, teacher=str(run))
    assert itself.classification.agreement == 100 and itself.row_tests.mcnemar.p == 1
    assert Record.load(run) == recorded


def test_other_rows_have_classes_too(run, made):
    rows = made[0].parent / "reviews.csv"
    lines = rows.read_text(encoding="utf-8").splitlines()
    other = run.parent / "others.csv"
    other.write_text("\n".join(lines[:21]) + "\n", encoding="utf-8")
    own = {"text_columns": ["review"], "label_column": "verdict"}
    found = evaluation_of(run, RowsAsked(data=str(other), **own))
    record = Record.load(run)
    assert record.classification[found.split] == found.classification
    assert found.classification.rows == 20 and found.classification.teacher is None


def test_the_command_line_prints_tables_or_json(run):
    said = json.loads(invoke("evaluate", run, "--json"))
    assert said["scores"]["accuracy"] == Record.load(run).scores["dev"]["accuracy"]
    shown = invoke("evaluate", run)
    for words in ("macro F1", "expected calibration error", "agree on", "McNemar's exact test"):
        assert words in shown
    (told,) = said["classification"]["disagreements"][0]["text"].values()
    assert told in shown and told not in invoke("evaluate", run, "--no-texts")


# ---- two runs ----


def test_two_runs_are_compared_by_what_they_kept(made):
    first, second = (predictions_of(run) for run in made)
    right = [
        [a == b for a, b in zip(one["prediction"], one["label"], strict=True)]
        for one in (first, second)
    ]
    found = compare_runs(*made)
    pairs = list(zip(*right, strict=True))
    assert found.tests.mcnemar.only_first == pairs.count((True, False))
    assert found.tests.mcnemar.only_second == pairs.count((False, True))
    gap = [Record.load(run).scores["dev"]["primary"] for run in made]
    assert found.tests.difference.difference == pytest.approx(gap[0] - gap[1])
    shown = invoke("compare", *made)
    assert "Tango's score interval over" in shown and "McNemar's exact test" in shown
    assert json.loads(invoke("compare", *made, "--json"))["row_tests"]["rows"] == len(right[0])


def test_runs_of_other_rows_are_refused(run, made):
    record = Record.load(run)
    record.examples.fingerprints["dev"] = "0" * 16
    record.save(run)
    with pytest.raises(LimbeckError, match="not scored on the same rows of dev"):
        compare_runs(run, made[1])
    with pytest.raises(LimbeckError, match="split tset: "):
        compare_runs(*made, split="tset")


def test_damaged_predictions_are_refused(run, made):
    text = (run / "predictions.json").read_text(encoding="utf-8")
    (run / "predictions.json").write_text(text.replace("1", "0", 1), encoding="utf-8")
    with pytest.raises(LimbeckError, match="holds no complete predictions of dev"):
        compare_runs(run, made[1])


# ---- what is shown, and what leaves the machine ----


def test_the_page_has_tables_and_drawings(run):
    record = Record.load(run)
    page = write_report([record], run / "page.html").read_text(encoding="utf-8")
    for words in ("By class", "macro F1", "Where student and teacher disagree most"):
        assert words in page
    found = record.classification["dev"]
    matrix = found.student.confusion
    assert (
        f"Student: confusion. Rows by label and prediction: negative as negative {matrix[0][0]}"
        in page
    )
    assert "Teacher: reliability. Accuracy by confidence" in page
    assert text_of(found.disagreements[0]) in page
    several = write_report([record, record], run / "several.html").read_text(encoding="utf-8")
    assert "By class" not in several


def test_cards_and_pushed_files_hold_no_texts_unless_asked(run):
    told = text_of(Record.load(run).classification["dev"].disagreements[0])
    card = write_card(run).read_text(encoding="utf-8")
    assert "macro F1" in card and "McNemar's exact test" in card and told not in card
    assert not any(told.encode() in content(file) for file in push_files(run, "me/it"))
    assert told in write_card(run, CardSettings(examples=True)).read_text(encoding="utf-8")
    pushed = {file.name: content(file) for file in push_files(run, "me/it")}
    assert told.encode() in pushed["README.md"] and told.encode() not in pushed["record.json"]
    assert told not in write_card(run, CardSettings(examples=False)).read_text(encoding="utf-8")


def content(file) -> bytes:
    return file.content if isinstance(file.content, bytes) else file.content.read_bytes()


def test_a_record_of_an_earlier_version_has_its_classes():
    older = {"name": "negative", "rows": 3, "recall": 50.0, "teacher_recall": 75.0}
    record = Record(kind="distill", method="kd", task="t", data="d", seed=1, classes=[older])
    (one,) = record.classes
    assert (one.name, one.recall, one.teacher_recall, one.f1) == ("negative", 50.0, 75.0, None)
    assert record.model_dump()["classes"] == [older]
