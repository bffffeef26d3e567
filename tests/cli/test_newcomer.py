"""A newcomer's first hour: from a CSV of her own to a shipped student, by the commands that each command prints next.

Nothing but the first command is written here; every later one is read from what was printed, and run as it stands.
"""

from __future__ import annotations

import csv
import os
import random
import shlex
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import tiny_runs as tiny
from limbeck.cli import finished
from limbeck.cli.app import app

QUESTIONS = os.environ.get("LIMBECK_QUESTIONS")
"""A CSV of real rows with the columns text and label, such as TREC's questions."""
ENCODER = os.environ.get("LIMBECK_ENCODER")
"""A folder with a pretrained encoder that was not fine-tuned."""
ROWS = 720


def ran(command: str) -> str:
    """Run a command as a shell would; what it printed."""
    program, *words = shlex.split(command)
    assert program == "limbeck"
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, f"{command}\n{ended.output}"
    return ended.stdout


def next_command(said: str) -> str:
    (line,) = (line for line in said.splitlines() if line.startswith("Next:"))
    return line.removeprefix("Next:").strip()


def shipped(first: str, rows: int) -> list[dict[str, str]]:
    """Follow the printed commands from the first one to the predictions of the shipped student, row by row."""
    said = ran(first)
    assert "(the model)" in said and "Warning:" not in said
    commands = []
    for expected in ("distill", "export", "predict"):
        command = next_command(said)
        assert shlex.split(command)[1] == expected
        commands.append(command)
        said = ran(command)
    written = shlex.split(commands[-1])
    target = Path(written[written.index("--to") + 1])
    with target.open(newline="", encoding="utf-8") as stream:
        found = list(csv.DictReader(stream))
    assert len(found) == rows
    return found


def test_the_printed_commands_lead_from_a_csv_to_a_shipped_student(tmp_path, monkeypatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    tiny.save(tiny.knowing_teacher(2), tmp_path / "encoder")
    rows = tiny.write_csv(tmp_path / "reviews.csv", 60).read_text()
    # As most files have it: columns of usual names, which nobody has to type.
    Path("reviews.csv").write_text(rows.replace("review,verdict,page", "text,label,page", 1))
    few = "--max-length 24 --batch-size 8 --epochs 2 --lr 1e-3 group_by_length=false"
    found = shipped(f"limbeck finetune --model encoder --data reviews.csv {few}", rows=60)
    right = Counter(row["prediction"] == row["label"] for row in found)
    assert right[True] > right[False]


def test_an_embedders_vectors_go_into_a_file_that_can_hold_them(tmp_path, monkeypatch) -> None:
    (tmp_path / "record.json").write_text("{}")
    (tmp_path / "texts.csv").write_text("text\na good film\n")
    monkeypatch.setattr(finished, "learned_nothing", lambda record: None)
    for kind, ending in (("embedding", ".parquet"), ("sentence", ".csv"), (None, ".csv")):
        record = SimpleNamespace(data=str(tmp_path / "texts.csv"), recipe={"kind": kind})
        monkeypatch.setattr(finished.Record, "load", lambda run, record=record: record)
        command = finished.after_export(tmp_path / "exported", tmp_path)
        assert command is not None and command.endswith(f"texts-predictions{ending}")
    # Translations are read from a file that the run made, which is none of the user's.
    record.recipe["parallel"] = ["pairs.tsv"]
    assert finished.after_export(tmp_path / "exported", tmp_path) is None


@pytest.mark.slow
@pytest.mark.skipif(
    not (QUESTIONS and ENCODER), reason="LIMBECK_QUESTIONS and LIMBECK_ENCODER name none"
)
def test_on_real_rows_with_every_default_the_shipped_student_tells_rows_apart(
    tmp_path, monkeypatch
) -> None:
    pytest.importorskip("onnxruntime")
    assert QUESTIONS and ENCODER
    with Path(QUESTIONS).open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    random.Random(1).shuffle(rows)
    monkeypatch.chdir(tmp_path)
    with Path("questions.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["text", "label"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows[:ROWS])
    model = Path(ENCODER).resolve()
    found = shipped(
        f"limbeck finetune --model {shlex.quote(str(model))} --data questions.csv", ROWS
    )
    predicted = Counter(row["prediction"] for row in found)
    assert len(predicted) > 1 and max(predicted.values()) < 0.9 * ROWS
