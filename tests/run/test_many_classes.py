"""Ten thousand classes: what a run writes of them is read again by every command."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli.app import app
from limbeck.records import Record
from limbeck.records.facts import AnswerCounts, ClassFacts, ClassificationScores, ModelScores
from limbeck.run.run_folder import kept_predictions
from synthetic_records import a_run

CLASSES = 10_000


def scores(classes: list[ClassFacts]) -> ClassificationScores:
    whole = ModelScores(accuracy=50.0, macro_f1=40.0)
    names = [one.name for one in classes]
    return ClassificationScores(
        rows=len(classes), names=names, student=whole, teacher=whole, classes=classes
    )


@pytest.mark.slow
def test_a_record_of_ten_thousand_classes_is_read_again(tmp_path):
    many = [
        ClassFacts(
            name=f"class {n}", rows=n, recall=1.5, f1=n / 2, teacher_f1=3.0, teacher_recall=0.0
        )
        for n in range(CLASSES)
    ]
    record = a_run("kd", 0, 70.0).model_copy(
        update={"classification": {split: scores(many) for split in ("dev", "test")}}
    )
    file = record.save(tmp_path)
    found = Record.load(tmp_path)
    assert found.classification["test"].classes == many
    assert found == record
    # A name and five numbers of each class and split, and the names in the order of the ids.
    assert file.stat().st_size < 2 * CLASSES * 120


def test_classes_are_written_in_columns_and_read_in_either_form(tmp_path):
    counts = AnswerCounts(true_positives=1, false_positives=2, false_negatives=3, true_negatives=4)
    two = [ClassFacts(name="a", rows=3, f1=50.0), ClassFacts(name="b", rows=1, counts=counts)]
    record = a_run("kd", 0, 70.0).model_copy(update={"classification": {"dev": scores(two)}})
    written = json.loads(record.save(tmp_path).read_text(encoding="utf-8"))
    plain = counts.model_dump()
    assert written["classification"]["dev"]["classes"] == {
        "name": ["a", "b"], "rows": [3, 1], "f1": [50.0, None], "counts": [None, plain],
    }  # fmt: skip
    assert Record.load(tmp_path).classes == two
    written.pop("checksum")
    earlier = [{"name": "a", "rows": 3, "f1": 50.0}, {"name": "b", "rows": 1, "counts": plain}]
    written["classification"]["dev"]["classes"] = earlier
    (tmp_path / "record.json").write_text(json.dumps(written), encoding="utf-8")
    assert Record.load(tmp_path).classes == two


@pytest.mark.parametrize(
    "columns", [{"name": ["a"], "rows": [1, 2]}, {"name": [1], "rows": "x"}, {"name": ["a"]}]
)
def test_columns_that_do_not_fit_are_refused(columns):
    with pytest.raises(ValueError, match="classes"):
        ClassificationScores.model_validate(scores([]).model_dump() | {"classes": columns})


@pytest.mark.slow
def test_every_command_reads_a_run_of_ten_thousand_classes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {n: f"class {n}" for n in range(CLASSES)}
    teacher = tiny.bert(1, id2label=names, label2id={name: n for n, name in names.items()})
    tiny.save(teacher, tmp_path / "start")
    texts = tiny.sentences(CLASSES)
    # Of a class with one row each nothing says that the column is one of labels.
    for split, each in (("train", 2), ("dev", 1)):
        lines = [f"{text},class {n}" for n, text in enumerate(texts)] * each
        (tmp_path / f"{split}.csv").write_text("\n".join(["text,label", *lines]), encoding="utf-8")
    rows = ["--data", "train.csv", "--dev", "dev.csv"]
    for out in ("one", "two"):
        ran = CliRunner().invoke(
            app,
            [
                *("finetune", "--model", "start", *rows, "--max-length", "24", "--out", out),
                *("--epochs", "1", "--batch-size", "500", "--seed", str(len(out))),
            ],
        )
        assert ran.exit_code == 0, ran.output
    assert len(Record.load("one").classes) == CLASSES
    assert kept_predictions(tmp_path / "one", "dev") is not None
    assert (tmp_path / "one" / "student" / "README.md").is_file()
    for command in (
        ["evaluate", "one"],
        ["compare", "one", "two"],
        ["table", "one", "two"],
        ["export", "one", "--max-drop", "100"],
        ["card", "one"],
    ):
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, f"{command}: {ran.output}"
