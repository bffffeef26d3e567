"""The whole list: nothing wrong, and everything at once."""

from __future__ import annotations

import json

from preflight_runs import BATCH, SST2, WORDS, knowing_teacher, model, rows, tokenizer, words_of
from torch import nn

from limbeck.activations import Request
from limbeck.data import rows_fingerprint
from limbeck.preflight import Method, TeacherSide, check, show
from limbeck.support.errors import Problem
from limbeck.tasks import Task


def test_list_shows_errors_first_each_with_its_fix(capsys):
    found = [
        Problem("good to know", "and more of it", "note"),
        Problem("odd [thing]", "look at it", "warning"),
        Problem("wrong", "fix it"),
    ]
    show(found)
    lines = [line.strip() for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "pre-flight: 1 error, 1 warning, 1 note",
        "error  wrong",
        "fix: fix it",
        "warning  odd [thing]",
        "fix: look at it",
        "note  good to know",
        "and more of it",
    ]


def arguments(task: Task = SST2, **changes):
    student = model()
    settings = {
        "task": task,
        "rows": {"train": rows(), "dev": rows(20, what="plot")},
        "student": student,
        "tokenizer": tokenizer(),
        "max_length": 8,
        "teachers": {"teacher": TeacherSide(knowing_teacher(), tokenizer())},
        "method": Method(
            weights={"hard": 1.0},
            requests={"teacher": Request.hidden([2]), "student": Request.of_logits()},
            terms=lambda batch: {"hard": student(**batch).loss},
            batch=BATCH,
        ),
    }
    return settings | changes


def test_nothing_wrong():
    assert check(**arguments()).problems == []
    assert check(**arguments(teachers={})).problems == []


def test_everything_wrong_at_once():
    found = check(
        **arguments(
            rows={"train": rows(4), "dev": rows(4)},
            teachers={
                "teacher": TeacherSide(
                    model(id2label={0: "positive", 1: "negative"}), tokenizer(WORDS[::-1])
                )
            },
            method=Method({"hard": 0.0}, {"teacher": Request.hidden([9])}, lambda batch: {}),
            max_length=99,
        ),
    ).problems
    text = words_of(found)
    for words in (
        "another order",
        "layer 9",
        "beyond",
        "weight is 0",
    ):
        assert words in text, words


def test_unnamed_classes_are_settled_by_the_teachers_answers():
    unnamed = {"id2label": {0: "LABEL_0", 1: "LABEL_1"}}
    right = TeacherSide(knowing_teacher(**unnamed), tokenizer())
    assert check(**arguments(teachers={"teacher": right})).problems == []
    swapped = TeacherSide(knowing_teacher(swapped=True, **unnamed), tokenizer())
    assert "class 0 means 'positive'" in words_of(
        check(**arguments(teachers={"teacher": swapped})).problems
    )
    ignorant = model(**unnamed)
    nn.init.zeros_(ignorant.classifier.weight)
    found = words_of(
        check(**arguments(teachers={"teacher": TeacherSide(ignorant, tokenizer())})).problems
    )
    assert "no better than" in found and "have no names" in found


def test_a_bad_record_is_believed(tmp_path):
    record = {"schema": 1, "task": "sst2", "scores": {"dev": {"primary": 50.0}}}
    record["examples"] = {"fingerprints": {"dev": rows_fingerprint(SST2, rows(20, what="plot"))}}
    (tmp_path / "record.json").write_text(json.dumps(record))
    teacher = TeacherSide(knowing_teacher(), tokenizer(), tmp_path)
    assert "50.0 (recorded in" in words_of(
        check(**arguments(teachers={"teacher": teacher})).problems
    )


def test_cut_examples_and_other_tokenizers_are_in_the_list():
    found = check(**arguments(), truncated={"train": 3}).problems
    assert "train: 3 of 40 examples" in words_of(found)
    other = TeacherSide(knowing_teacher(), tokenizer(WORDS[::-1]))
    assert "different vocabularies" in words_of(
        check(**arguments(teachers={"teacher": other})).problems
    )
