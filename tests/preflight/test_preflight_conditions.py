"""Teacher and student on the same rows, as far as the teacher's record can tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from preflight_runs import SST2

from limbeck.data import Conditions
from limbeck.preflight.data_checks import check_conditions
from limbeck.tasks import get_task

OLD = {"method": "finetune"}
"""A recipe of a version that knew no conditions."""


def teacher(folder: Path, **recipe: object) -> Path:
    """A run folder's student, beside the run's record."""
    (folder / "student").mkdir()
    record = {"schema": 1, "task": "sst2", "recipe": OLD | recipe}
    (folder / "record.json").write_text(json.dumps(record))
    return folder / "student"


@pytest.mark.parametrize(
    ("recipe", "student"),
    [
        ({}, Conditions()),
        ({"train_rows": None, "label_noise": 0.0}, Conditions()),
        ({"train_rows": 10, "train_rows_seed": 1}, Conditions(10, 1)),
        ({"label_noise": 0.3}, Conditions(label_noise=0.3)),
        # Seeds of nothing decide nothing.
        ({"train_rows_seed": 5, "label_noise_seed": 6}, Conditions()),
    ],
)
def test_the_same_rows_are_no_problem(tmp_path, recipe, student):
    assert check_conditions(teacher(tmp_path, **recipe), SST2, student) == []


@pytest.mark.parametrize(
    ("recipe", "student", "message", "fix"),
    [
        (
            {},
            Conditions(train_rows=10),
            "trained on all rows as they are, the student is to be on rows with train_rows=10 "
            "train_rows_seed=0 stratified=false",
            "train_rows=null",
        ),
        (
            {"label_noise": 0.3, "label_noise_seed": 2},
            Conditions(),
            "trained on rows with label_noise=0.3 label_noise_seed=2, the student is to be on all",
            "label_noise=0.3 label_noise_seed=2",
        ),
        (
            {"train_rows": 10, "stratified": True},
            Conditions(train_rows=10),
            "stratified=true, the student",
            "teacher's: stratified=true",
        ),
    ],
)
def test_other_rows_are_a_warning_with_the_settings_to_give(
    tmp_path, recipe, student, message, fix
):
    for place in (teacher(tmp_path, **recipe), tmp_path):
        (problem,) = check_conditions(place, SST2, student)
        assert problem.severity == "warning"
        assert message in problem.message
        assert f"{fix}; if it is meant so: teacher_rows=any" in problem.fix


def test_where_nothing_is_known_nothing_is_said(tmp_path):
    noisy = Conditions(label_noise=0.5)
    assert check_conditions(None, SST2, noisy) == []
    assert check_conditions("owner/name", SST2, noisy) == []
    assert check_conditions(tmp_path, SST2, noisy) == []
    # A teacher of another task saw other rows anyway.
    assert check_conditions(teacher(tmp_path), get_task("mrpc"), noisy) == []
