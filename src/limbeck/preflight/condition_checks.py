"""Were teacher and student trained on the same rows: as few of them, with the same noise.

Part of `limbeck.preflight`. A teacher that limbeck trained says in its record what it saw.
"""

from __future__ import annotations

from pathlib import Path

from limbeck.data import Conditions
from limbeck.preflight.score_checks import teacher_record
from limbeck.support.errors import Problem
from limbeck.tasks import Task

# What decides nothing unless another key is set.
_IDLE_WITHOUT = {
    "train_rows_seed": "train_rows",
    "stratified": "train_rows",
    "label_noise_seed": "label_noise",
}


def check_conditions(
    path: str | Path | None, task: Task, student: Conditions, *, setting: str = "teacher"
) -> list[Problem]:
    """A teacher of this task whose training rows were under other conditions than the student's."""
    found = teacher_record(path, task)
    if found is None:
        return []
    record, place = found
    recipe = record.get("recipe") or {}
    # A record of a version that knew no such condition: there was none.
    teacher = Conditions()._replace(
        **{key: recipe[key] for key in Conditions._fields if key in recipe}
    )
    theirs, ours = _said(teacher), _said(student)
    if theirs == ours:
        return []
    changes = " ".join(
        f"{key}={_written(theirs.get(key, Conditions._field_defaults[key]))}"
        for key in Conditions._fields
        if theirs.get(key) != ours.get(key) and (key in theirs or key not in _IDLE_WITHOUT)
    )
    return [
        Problem(
            f"{setting}: it was trained on {_words(theirs)}, the student is to be on {_words(ours)} "
            f"({place})",
            f"give a teacher that saw the same rows, or give the student the teacher's: {changes}; "
            "if it is meant so: teacher_rows=any",
            "warning",
        )
    ]


def _said(conditions: Conditions) -> dict[str, object]:
    """The conditions that decide something."""
    return {
        key: value
        for key, value in conditions._asdict().items()
        if (getattr(conditions, _IDLE_WITHOUT[key]) if key in _IDLE_WITHOUT else value)
    }


def _words(said: dict[str, object]) -> str:
    if not said:
        return "all rows as they are"
    return "rows with " + " ".join(f"{key}={_written(value)}" for key, value in said.items())


def _written(value: object) -> str:
    return "null" if value is None else str(value).lower()
