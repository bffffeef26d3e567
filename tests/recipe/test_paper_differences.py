"""What a study says differs from its paper follows from what is run, also where options narrow it."""

from __future__ import annotations

import re

import pytest

from limbeck.lab.study import load_study, shipped
from limbeck.lab.study.study_output import given_otherwise, paper_differences

STUDY = """
title: t
data: pocket
model: pocket
methods: {kd: , tinybert: , own: {settings: {epochs: 9}}}
scales:
  paper: {tasks: [sst2, mrpc, rte, cola], seeds: [1, 2, 3, 4], students: {epochs: 3}}
  small:
    tasks: [sst2, mrpc, rte]
    seeds: [1, 2]
    students: {epochs: 2}
    methods: {tinybert: {settings: {first_stage.epochs: 1}}}
    per_task: {sst2: {train_rows: 10000, epochs: 1, teachers.train_rows: 7}}
    differs: ["another encoder"]
  other: {tasks: [stsb], seeds: [1, 2, 3, 4, 5], axes: {train_rows: [10, 20]}, students: {epochs: 3}}
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(STUDY, encoding="utf-8")
    return file


def test_what_keys_show_is_said_before_the_files_own_sentences(path) -> None:
    assert paper_differences(load_study(path, scale="small")) == [
        "3 of 4 tasks",
        "2 of 4 seeds",
        "10,000 training rows of SST-2",
        "2 or 9 epochs (SST-2: 1 or 9)",
        "a first stage of 1 epoch",
        "another encoder",
    ]


def test_options_that_narrow_a_study_change_what_is_said(path) -> None:
    given = {"tasks": ["mrpc"], "seeds": [1], "students.epochs": 3, "settings.lr": 0.1}
    study = load_study(path, scale="small", **given)
    assert paper_differences(study) == [
        "1 of 4 tasks",
        "1 of 4 seeds",
        "a first stage of 1 epoch",
        "another encoder",
    ]
    assert given_otherwise(study) == ["students.epochs=3", "settings.lr=0.1"]
    asked = load_study(path, scale="paper", tasks=["rte"])
    assert paper_differences(asked) == ["1 of 4 tasks"]


def test_nothing_is_said_where_nothing_differs(path) -> None:
    assert paper_differences(load_study(path, scale="paper")) == []
    assert given_otherwise(load_study(path, scale="paper", data="pocket")) == []


def test_other_tasks_and_axes(path) -> None:
    study = load_study(path, scale="other")
    assert paper_differences(study) == ["STS-B instead of SST-2, MRPC, RTE, CoLA"]


def test_shipped_files_leave_to_the_program_what_it_counts() -> None:
    counted = re.compile(r"\b(\d+|one|two|three) (tasks?|seeds?|passes|pass)\b(?! of the papers?)")
    for name, one in shipped().items():
        for scale in one.scales:
            for line in one.raw["scales"][scale].get("differs", []):
                assert not counted.search(line) or "chosen on one seed" in line, (name, line)
