"""The quickstart: which rows each student reads, what its table and last sentence say, and its settings."""

from __future__ import annotations

import csv

import pytest

from limbeck.data import load_task
from limbeck.lab import quickstart as quick
from limbeck.records import Record
from limbeck.support.errors import LimbeckError


def run_of(label: str, seed: int, score: float) -> Record:
    """A student's record, as far as the table reads it."""
    return Record.model_validate(
        {
            "kind": "finetune" if label == quick.ALONE else "distill",
            "status": "finished",
            "method": label,
            "task": "sst2",
            "data": "pocket",
            "seed": seed,
            "scores": {"dev": {"accuracy": score, "primary": score}},
            "student": {"layers": 2},
            "teacher": {"layers": 12, "scores": {"dev": {"accuracy": 92.0, "primary": 92.0}}},
        }
    )


def table_of(alone: list[float], more: list[float]):
    return quick.results(
        [
            run_of(label, seed, score)
            for label, scores in ((quick.ALONE, alone), (quick.UNLABELLED, more))
            for seed, score in enumerate(scores, start=1)
        ]
    )


def test_rows_without_labels_are_all_others(tmp_path):
    """The file holds every text of the training rows but those that keep their labels, and no label."""
    _, splits = load_task("mrpc", "pocket")
    path, count = quick._unlabelled_rows("mrpc", 13_990, tmp_path)
    with path.open(encoding="utf-8", newline="") as stream:
        read = list(csv.DictReader(stream))
    assert count == len(read) == 10
    assert set(read[0]) == {"sentence1", "sentence2"}
    train = {(row["sentence1"], row["sentence2"]) for row in splits["train"]}
    labelled = splits["train"].shuffle(seed=0).select(range(13_990))
    kept = {(row["sentence1"], row["sentence2"]) for row in labelled}
    assert {tuple(row.values()) for row in read} == train - kept


def test_some_rows_must_be_left_without_a_label(tmp_path):
    with pytest.raises(LimbeckError, match="16,000 training rows, and none would be without"):
        quick.quickstart(tmp_path, labels=16_000, show=False)
    assert not any(tmp_path.iterdir())


def test_the_last_sentence_says_what_the_table_shows():
    # Differences 4, 5, 6 and 5: mean 5, deviation 0.816, t = 5 / (0.816 / 2) = 12.2 with 3 degrees of freedom.
    said = quick.summed_up(table_of([80, 81, 82, 81], [84, 86, 88, 86]))
    assert "reaches 86.0 instead of 81.0" in said
    assert said.endswith("+5.0, p = 0.001 (paired over 4 seeds).")
    # No order without a test that supports it.
    said = quick.summed_up(table_of([80, 90, 85], [84, 86, 88]))
    assert said.endswith("That is no significant difference.")
    assert quick.summed_up(table_of([80], [84])).endswith("one seed shows no more than that.")


def test_both_students_take_as_many_steps():
    """Whatever the gain is, it is not of longer training: the one of the labels reads as many examples."""
    rows = len(load_task(quick.TASK, "pocket")[1]["train"])
    alone, more = (quick._passes(quick.STUDENT_EXAMPLES, n) * n for n in (quick.LABELS, rows))
    assert abs(alone - more) < 0.01 * more


@pytest.mark.slow
def test_any_number_of_processes_makes_the_same_students(tmp_path, monkeypatch):
    """Bit for bit; a second start makes only what is not there, and other settings are refused."""
    monkeypatch.setattr(quick, "TEACHER_EXAMPLES", 3_000)
    monkeypatch.setattr(quick, "STUDENT_EXAMPLES", 3_000)

    def start(name: str, jobs: int, **given) -> list[bytes]:
        settings = {"labels": 1_500, "seeds": 1} | given
        quick.quickstart(tmp_path / name, jobs=jobs, show=False, **settings)
        students = [tmp_path / name / quick.run_name(label, 1) for label in quick.STUDENTS]
        return [(one / "student" / "model.safetensors").read_bytes() for one in students]

    one = start("one", 1)
    assert start("two", 2) == one and one[0] != one[1]
    records = {path: path.stat().st_mtime_ns for path in (tmp_path / "two").glob("*/record.json")}
    weights = tmp_path / "two" / quick.run_name(quick.ALONE, 1) / "student" / "model.safetensors"
    weights.write_bytes(b"damaged")
    assert start("two", 2) == one
    again = {path for path, made in records.items() if path.stat().st_mtime_ns != made}
    assert again == {weights.parents[1] / "record.json"}
    with pytest.raises(LimbeckError, match=r"another recipe \(they differ in train_rows"):
        start("two", 2, labels=1_400)
