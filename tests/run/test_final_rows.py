"""Test rows: scored once, when everything is chosen, and by nothing that chooses."""

from __future__ import annotations

import csv
import json
import shutil

import pytest
import torch
from datasets import Dataset, DatasetDict
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import tiny_runs as tiny
from limbeck.data import RowsAsked
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run import distill
from limbeck.run.beside_teacher import teacher_scores
from limbeck.run.prepare import prepare
from limbeck.run.prepared import FinalRows
from limbeck.run.rows import EncodedRows, load_rows
from limbeck.scoring import ScoredModel, evaluate
from limbeck.scoring.evaluation import compare_runs
from limbeck.support.errors import LimbeckError
from limbeck.tables import build_table


@pytest.fixture(scope="module")
def rows(place, tmp_path_factory):
    """One file of 120 rows."""
    return tiny.write_csv(tmp_path_factory.mktemp("rows") / "reviews.csv", 120)


@pytest.fixture(scope="module")
def run(recipe, rows, tmp_path_factory):
    """A student of a teacher, on one file."""
    return distill(
        recipe("kd", data=str(rows), epochs=1),
        out=tmp_path_factory.mktemp("run") / "run",
        report=False,
    )


def accuracy(folder, texts, labels) -> float:
    """As transformers says it, one text at a time."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    words = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        given = [int(model(**words(text, return_tensors="pt")).logits.argmax()) for text in texts]
    return 100 * sum(a == b for a, b in zip(given, labels, strict=True)) / len(labels)


def test_student_and_teacher_are_scored_on_rows_that_chose_nothing(run, recipe, rows, place):
    record = run.record
    assert (record.examples.train, record.examples.dev, record.examples.test) == (96, 12, 12)
    test = load_rows(recipe("kd", data=str(rows)))[1]["test"]
    known = test["sentence"][:], test["label"][:]
    assert record.scores["test"]["accuracy"] == pytest.approx(
        accuracy(run.path / "student", *known)
    )
    assert record.teacher.scores["test"]["accuracy"] == pytest.approx(
        accuracy(place / "teacher", *known)
    )
    assert record.classification["test"].rows == record.row_tests["test"].rows == 12
    kept = json.loads((run.path / "predictions.json").read_text(encoding="utf-8"))["test"]
    assert kept["index"] == test["index"][:] and kept["label"] == known[1]


def test_rows_that_the_run_has_learned_are_not_scored_as_fresh_ones(run, rows, tmp_path, caplog):
    """Half of the run's own file in another file, then other texts: the card tells them apart."""
    head, *lines = rows.read_text(encoding="utf-8").splitlines()
    known, other = tmp_path / "known.csv", tmp_path / "other.csv"
    texts = [line.partition(",") for line in lines]
    half = [text.upper() + comma + rest for text, comma, rest in texts[:60]]
    for path, own in ((known, half), (other, [line.replace(",", " indeed,", 1) for line in lines])):
        path.write_text("\n".join([head, *own]) + "\n", encoding="utf-8")
    place = shutil.copytree(run.path, tmp_path / "run")
    for path in (known, other):
        evaluate(place, data=str(path))
    record = Record.load(place)
    first, second = (one for one in record.scores if " of " in one)
    repeated = record.examples.in_train
    own_rows = load_rows(Recipe.load(str(place / "recipe.yaml")))[1]
    learned = {text for split in ("train", "dev") for text in own_rows[split]["sentence"]}
    count = sum(text in learned for text, *_ in texts[:60])
    assert repeated[first] == count > 30 and second not in repeated
    assert f"{count} of these 60 rows are training or dev rows" in caplog.text
    said = (place / "student" / "README.md").read_text(encoding="utf-8")
    fresh = said.split("On rows that chose nothing it scores")[1].split("\n")[0]
    assert "other.csv)" in fresh and "known.csv" not in fresh
    assert f"{count} rows of {first.split(' #')[0]} are also training or dev rows." in said


def test_every_later_command_has_the_same_rows(run):
    before = {split: dict(scores) for split, scores in run.record.scores.items()}
    assert evaluate(run.path, split="test") == pytest.approx(before["test"])
    record = Record.load(run.path)
    assert [*record.scores] == ["dev", "test"]
    for split in ("dev", "test"):
        assert (
            ScoredModel.open(run.path).rows(RowsAsked(split=split)).fingerprint
            == (record.examples.fingerprints[split])
        )


def test_test_labels_change_nothing_but_their_own_score(recipe, tmp_path, rows):
    runs = []
    for name, flipped in (("as it is", False), ("flipped", True)):
        test = tmp_path / f"{name}.csv"
        with test.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["review", "verdict"])
            for row, text in enumerate(tiny.sentences(20)):
                writer.writerow([text, ["positive", "negative"][(row % 2) ^ flipped]])
        runs.append(
            distill(
                recipe("kd", data=str(rows), test=str(test), epochs=2, batch_size=32),
                out=tmp_path / name,
            )
        )
    one, other = (run.record for run in runs)
    for left, right in zip(*(run.student.state_dict().values() for run in runs), strict=True):
        assert torch.equal(left, right)
    assert (one.best, one.last, one.scores["dev"]) == (other.best, other.last, other.scores["dev"])
    assert one.teacher.scores["dev"] == other.teacher.scores["dev"]
    assert one.scores["test"]["accuracy"] == pytest.approx(100 - other.scores["test"]["accuracy"])


def test_what_selects_cannot_be_handed_test_rows(recipe, rows):
    prepared = prepare(recipe("kd", data=str(rows)))
    assert isinstance(prepared.final, FinalRows)
    assert not isinstance(prepared.final, Dataset | EncodedRows | dict)
    assert set(prepared.splits) == {"train", "dev"} and set(prepared.dev) == {"dev"}
    assert set(teacher_scores(prepared, 0)) == {"dev"}
    assert not hasattr(prepared.final, "__getitem__") and not hasattr(prepared.final, "encoded")


def test_a_test_file_without_labels_is_not_scored(recipe, tmp_path):
    for split, count in (("train", 40), ("dev", 8)):
        tiny.write_csv(tmp_path / f"{split}.csv", count)
    (tmp_path / "test.csv").write_text("review\ngood film\nbad film\n", encoding="utf-8")
    found = distill(
        recipe("finetune", data=str(tmp_path), max_steps=1), out=tmp_path / "run", report=False
    )
    assert [*found.record.scores] == ["dev"] and found.record.examples.test is None


def test_a_test_split_from_python_is_scored(recipe, tmp_path):
    def given(count):
        labels = [1 - row % 2 for row in range(count)]
        return Dataset.from_dict({"text": tiny.sentences(count), "label": labels})

    data = DatasetDict(train=given(40), validation=given(8), test=given(12))
    found = distill(
        "finetune", out=tmp_path / "run", report=False, data=data, max_steps=1, max_length=24,
        **{"student.init": str(recipe().student.init)},
    )  # fmt: skip
    assert found.record.examples.test == 12 and "test" in found.scores


@pytest.mark.slow
def test_a_run_of_before_is_read_as_it_was_divided(recipe, rows, place, tmp_path, caplog):
    knows = {"student.init": str(place / "teacher"), "lr": 1e-6}
    told = recipe("finetune", data=str(rows), test_share=0.0, max_steps=1, **knows)
    old = distill(told, out=tmp_path / "old", report=False)
    content = json.loads((old.path / "record.json").read_text(encoding="utf-8"))
    for key in ("test", "dev_share", "test_share", "group_column"):
        del content["recipe"][key]
    del content["checksum"], content["examples"]["test"]
    (old.path / "record.json").write_text(json.dumps(content), encoding="utf-8")
    before = Record.load(old.path)
    assert Recipe.recorded(before.recipe, "old").test_share == 0.0
    assert evaluate(old.path) == pytest.approx(before.scores["dev"])
    assert [*Record.load(old.path).scores] == ["dev"]
    # Its training rows are today's test rows: it may teach, but has no test score.
    taught = distill(
        recipe("kd", data=str(rows), teacher=str(old.path), max_steps=1), out=tmp_path / "new",
        report=False,
    )  # fmt: skip
    assert "test" in taught.scores and "test" not in taught.record.teacher.scores
    assert "was trained on 12 of the 12 test rows" in caplog.text


def test_a_folder_of_before_is_refused_by_name(recipe, rows, tmp_path):
    told = recipe("finetune", data=str(rows), test_share=0.0, max_steps=1)
    old = distill(told, out=tmp_path / "old", report=False)
    lines = (old.path / "recipe.yaml").read_text(encoding="utf-8").splitlines()
    new = ("test:", "dev_share:", "test_share:", "group_column:")
    written = [line for line in lines if not line.startswith(new)]
    (old.path / "recipe.yaml").write_text("\n".join(written) + "\n", encoding="utf-8")
    copy = shutil.copytree(old.path, tmp_path / "copy")
    with pytest.raises(LimbeckError, match=r"another recipe \(they differ in test_share\)"):
        distill(recipe("finetune", data=str(rows), max_steps=1), out=copy, report=False)


def test_tables_and_comparisons_are_made_of_test_rows(run, finished):
    record = run.record
    (column,) = build_table([record], split="test").columns
    made = build_table([record], split="test")
    cells = {row.role: row.cells[column.key].mean for row in made.rows}
    assert cells["student"] == record.scores["test"]["primary"]
    assert cells["teacher"] == record.teacher.scores["test"]["primary"]
    assert any("which chose nothing" in note for note in made.notes)
    plain = build_table([record])
    assert [one.title for one in plain.columns] == ["reviews", "reviews test"]
    assert any("the best epoch's score on the rows that selected it" in n for n in plain.notes)
    found = compare_runs(run.path, run.path, "test")
    assert (found.split, found.tests.rows, found.tests.difference.difference) == ("test", 12, 0)
    assert found.scores[0] == record.scores["test"]
    with pytest.raises(
        LimbeckError, match=r"(?s)was not scored on such rows.*--test FILE or --test-share"
    ):
        compare_runs(run.path, finished.path, "test")
    with pytest.raises(LimbeckError, match="split test: 1 of 2 runs have no scores there"):
        build_table([record, finished.record], split="test")


@pytest.mark.slow
def test_scored_rows_that_are_trained_on_are_said(recipe, tmp_path, capfd, pages):
    def given(*texts):
        labels = [int("good" in text.lower()) for text in texts]
        return Dataset.from_dict({"text": list(texts), "label": labels})

    data = DatasetDict(
        train=given(*tiny.sentences(40)),
        validation=given("film good", " Good FILM", "end bad", "plot good", "good bad", "film bad"),
        test=given("good", "film", "good film", "good film"),
    )
    found = distill(
        "finetune", out=tmp_path / "run", show=True, data=data, max_steps=1, max_length=24,
        **{"student.init": str(recipe().student.init)},
    )  # fmt: skip
    assert tiny.sentences(1) == ["good film"]
    assert found.record.examples.in_train == {"dev": 1, "test": 2}
    printed = " ".join(capfd.readouterr().err.split())
    card = (found.path / "student" / "README.md").read_text(encoding="utf-8")
    page = (found.path / "report.html").read_text(encoding="utf-8")
    for said in ("1 of 6 dev rows", "2 of 4 test rows"):
        assert f"{said} are also training rows" in card
        assert f"{said} are also training rows" in page
    assert "dev: 1 of 6 rows are also training rows" in printed
    assert "test: 2 of 4 rows are also training rows" in printed
