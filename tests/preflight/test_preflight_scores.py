"""Teachers against constant answers, worked by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from preflight_runs import SST2, knowing_teacher, rows, tokenizer

from limbeck.preflight import TeacherOutputs, ask_teacher, errors_of
from limbeck.preflight.score_checks import check_class_order, check_teacher_score, recorded_scores
from limbeck.tasks import CAUSAL_LM, get_task


def baseline(task, labels):
    return task.kind.baseline(task, labels)


def test_constant_baseline_by_hand():
    # Three of four positive.
    assert baseline(SST2, np.array([1, 1, 1, 0])) == (75.0, "positive")
    # MRPC: always "equivalent": accuracy 3/4, precision 3/4, recall 1, F1 6/7.
    value, answer = baseline(get_task("mrpc"), np.array([1, 1, 1, 0]))
    assert answer == "equivalent" and value == pytest.approx(100 * (3 / 4 + 6 / 7) / 2)
    # QQP with two of five duplicates: the majority scores 60/2, always "duplicate" more:
    # accuracy 2/5, precision 2/5, recall 1, F1 4/7.
    value, answer = baseline(get_task("qqp"), np.array([0, 0, 0, 1, 1]))
    assert answer == "duplicate" and value == pytest.approx(100 * (2 / 5 + 4 / 7) / 2)
    assert baseline(get_task("cola"), np.array([1, 1, 0]))[0] == 0
    assert baseline(get_task("stsb"), np.array([1.0, 4.5]))[0] == 0


def test_recorded_score_lies_in_or_above_the_teacher(tmp_path):
    student = tmp_path / "student"
    student.mkdir()
    record = {"schema": 1, "task": "sst2", "scores": {"dev": {"primary": 91.5}}}
    record["examples"] = {"fingerprints": {"dev": "a1"}}
    (tmp_path / "record.json").write_text(json.dumps(record))
    for path in (tmp_path, student):
        scores, place = recorded_scores(path, SST2, {"dev": "a1"})
        assert scores == {"dev": {"primary": 91.5}} and place.name == "record.json"
        assert recorded_scores(path, SST2, {"dev": "b2"})[0] == {}
    assert recorded_scores(tmp_path, get_task("mrpc"), {"dev": "a1"}) is None
    assert recorded_scores("some/hub-name", SST2, {"dev": "a1"}) is None
    (tmp_path / "record.json").write_text("{torn")
    assert recorded_scores(tmp_path, SST2, {"dev": "a1"}) is None


def test_a_teacher_that_knows_and_one_that_does_not():
    dev = rows()
    answers = ask_teacher(SST2, knowing_teacher(), tokenizer(), dev, 8)
    assert answers.scores["primary"] == 100 and answers.origin == "measured on dev"
    labels = np.asarray(dev["label"][:])
    assert check_teacher_score(SST2, 100.0, "measured on dev", labels) == []
    found = check_teacher_score(SST2, 50.0, "recorded in r", labels)
    assert "50.0 (recorded in r) is no better than always predicting" in found[0].message
    # Of forty tosses of a coin 27 or more are heads with p = .019, 28 or more with p = .008.
    found = check_teacher_score(SST2, 67.5, "", labels)
    assert "not significantly better" in found[0].message and found[0].severity == "warning"
    assert check_teacher_score(SST2, 70.0, "", labels) == []
    # Of twelve 11 or more: 13 / 4096; of six all of them: 1 / 64.
    assert check_teacher_score(SST2, 100 * 11 / 12, "", labels[:12]) == []
    few = check_teacher_score(SST2, 100.0, "", labels[:6])
    assert "6 rows of dev are too few" in few[0].message and few[0].severity == "note"
    # Three texts of 40 words: as forty tosses of which 10 are heads by chance, 18 or more with p = .006; half are
    # "the". The words of a text are its labels, and have no order to check.
    text = get_task("sst2"), ["the a the b " * 5, "the c " * 5, "the d e f the g the h i j"]
    words = replace(text[0], kind=CAUSAL_LM, labels=(), primary="accuracy")
    assert len(" ".join(text[1]).split()) == 40
    assert check_teacher_score(words, 100 * 31 / 40, "", text[1]) == []
    (few,) = check_teacher_score(words, 100 * 21 / 40, "", text[1])
    assert (
        few.severity == "warning"
        and few.fix == "fine-tune the teacher on sst2 first or give another one"
    )
    # A hundred rows of a correlation: 30 points.
    stsb, numbers = get_task("stsb"), np.linspace(0, 5, 100)
    assert errors_of(check_teacher_score(stsb, -2.0, "", numbers))
    assert check_teacher_score(stsb, 29.0, "", numbers)[0].severity == "warning"
    assert check_teacher_score(stsb, 31.0, "", numbers) == []
    sample = ask_teacher(SST2, knowing_teacher(), tokenizer(), dev, 8, rows=7)
    assert len(sample.labels) == 7 and sample.origin == "measured on 7 rows of dev"


def test_class_order_is_read_from_the_answers():
    labels = np.arange(300) % 3
    task = get_task("mnli")
    right, turned = np.eye(3)[labels], np.eye(3)[(labels + 1) % 3]
    assert check_class_order(task, TeacherOutputs(right, labels, "measured")) == []
    found = check_class_order(task, TeacherOutputs(turned, labels, "measured"))
    assert "class 1 means 'entailment'" in found[0].message
    assert "accuracy 100.0 instead of 0.0" in found[0].message
    guesses = np.random.default_rng(0).random((300, 3))
    assert check_class_order(task, TeacherOutputs(guesses, labels, "measured")) == []
    constant = np.tile([1.0, 0.0, 0.0], (300, 1))
    assert check_class_order(task, TeacherOutputs(constant, np.full(300, 2), "measured")) == []


def test_few_dev_rows_cannot_tell_a_perfect_teacher():
    (note,) = check_teacher_score(SST2, 100.0, "measured on dev", [0, 1] * 3)
    assert note.severity == "note"
    assert "6 rows of dev are too few to distinguish its score of 100.0" in note.message
    (guessing,) = check_teacher_score(SST2, 50.0, "measured on dev", [0, 1] * 3)
    assert guessing.severity == "error"
