"""`limbeck predict` as it is typed: pipes, patterns, exported folders, runs, and the score that `evaluate` gives."""

from __future__ import annotations

import csv
import io
import json

import pytest
from sklearn.metrics import accuracy_score
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck import evaluate, predict
from limbeck.cli.app import app
from limbeck.records import Record
from synthetic_records import a_run

runner = CliRunner()


def typed(*arguments: object, stdin: str | bytes | None = None):
    return runner.invoke(app, ["predict", *map(str, arguments)], input=stdin)


@pytest.fixture(scope="module")
def model(folders) -> str:
    return folders["sentence"]


def test_a_pipe_in_a_pipe_out(model) -> None:
    ran = typed(model, "-", "--format", "text", "--output", "labels", "scores", stdin="good\nbad\n")
    assert ran.exit_code == 0, ran.stderr
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [row["prediction"] for row in rows] == ["positive", "negative"]
    assert all(0.5 <= row["score"] <= 1 for row in rows)
    assert typed(model, "-", "--format", "text", "--to", "-", stdin="bad\n").stdout == (
        '{"text": "bad", "prediction": "negative"}\n'
    )
    assert "2 rows" in ran.stderr and "rows/s" in ran.stderr


def test_csv_to_standard_output_has_a_column_a_class(model) -> None:
    ran = typed(
        model, "-", "--format", "csv", "--to-format", "csv", "--output", "probabilities",
        "--keep", "id", stdin='id,text\n7,"good, end"\n8,\n',
    )  # fmt: skip
    header, first, second = csv.reader(io.StringIO(ran.stdout))
    assert header == ["id", "probability_negative", "probability_positive"]
    assert first[0] == "7" and abs(float(first[1]) + float(first[2]) - 1) < 1e-6
    assert second == ["8", "", ""]
    assert "1 of them without text" in ran.stderr


def test_a_column_that_comes_behind_the_header_is_refused(model) -> None:
    lines = '{"text": "good"}\n{"text": "bad", "late": 1}\n'
    ran = typed(model, "-", "--format", "jsonl", "--to-format", "csv", stdin=lines)
    assert ran.exit_code == 2 and "late" in ran.stderr


def test_mistakes_are_listed_before_any_work(model, tmp_path) -> None:
    ran = typed(model, tmp_path / "none.csv", "--to", tmp_path / "out.xls", "--backend", "tensorrt")
    assert ran.exit_code == 2
    assert "3 things to fix" in ran.stderr
    for part in ("unknown backend 'tensorrt'", "there is no file", "unknown file type of --to"):
        assert part in ran.stderr
    assert "to-format" in typed(model, "-", "--format", "csv", "--to-format", "xml").stderr


def test_written_labels_have_the_score_that_evaluate_gives(model, tmp_path) -> None:
    """Half of the labels are wrong, so that the score is none of 0 and 100."""
    texts = tiny.sentences(40)
    data = tmp_path / "dev.csv"
    labels = [("negative", "positive")[(n // 2) % 2] for n in range(40)]
    with data.open("w", newline="") as stream:
        csv.writer(stream).writerows([("review", "verdict"), *zip(texts, labels, strict=True)])
    out = tmp_path / "out.csv"
    ran = typed(model, data, "--text-columns", "review", "--to", out)
    assert ran.exit_code == 0, ran.stderr
    rows = list(csv.DictReader(out.open()))
    ours = 100 * accuracy_score([r["verdict"] for r in rows], [r["prediction"] for r in rows])
    scores = evaluate(
        model, task="own", data=str(data), text_columns=["review"], label_column="verdict"
    )
    assert ours == pytest.approx(scores["accuracy"]) and 20 < ours < 80


def test_a_run_knows_its_columns_and_its_length(tmp_path) -> None:
    run = tmp_path / "run"
    record = a_run("kd", 1, 80.0)
    record.recipe |= {"task": "mrpc", "max_length": 11, "text_columns": None, "label_column": None}
    record.save(run)
    tiny.save(tiny.knowing_teacher(1), run / "student")
    rows = tmp_path / "rows.tsv"
    rows.write_text(
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t2\t3\tgood film\tbad " + "the " * 20
    )
    for named in (run, run / "student"):
        said = predict(named, rows)
        assert said.cut == 1
        assert said.rows[0]["prediction"] in ("negative", "positive")
    record = Record.load(run)
    record.status = "failed"
    record.save(run)
    assert "is failed" in typed(run, rows).stderr


def test_a_known_task_names_the_classes(folders, tmp_path) -> None:
    model = tiny.knowing_teacher(1)
    model.config.id2label = {0: "LABEL_0", 1: "LABEL_1"}
    folder = tiny.save(model, tmp_path / "model")
    (row,) = predict(folder, ["good"])
    assert row["prediction"] == "LABEL_1"
    (row,) = predict(folder, ["good"], task="sst2")
    assert row["prediction"] == "positive"
    ran = typed(folder, "-", "--format", "text", "--task", "mnli", stdin="good\n")
    assert ran.exit_code == 2 and "has 3 classes" in ran.stderr
