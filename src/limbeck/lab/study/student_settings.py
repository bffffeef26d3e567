"""What a study gives a student's run, before a grid: the later key wins. Part of `limbeck.lab.study`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from limbeck.lab.study.study_fields import Study

OF_TEACHERS = "teachers."
"""How keys of `per_task` begin that are of the teacher's run alone."""


def shared_settings(study: Study, task: str) -> dict[str, Any]:
    """Recipe keys of every run of a task, teachers' included."""
    return {**study.settings, "data": study.data, "task": task}


def student_settings(
    study: Study, label: str, task: str, condition: Mapping[str, Any]
) -> dict[str, Any]:
    """Recipe keys of a row's runs on a task, under one condition of `axes`."""
    own = {
        key: value
        for key, value in study.per_task.get(task, {}).items()
        if not key.startswith(OF_TEACHERS)
    }
    found: dict[str, Any] = {}
    spec = study.method_of(label)
    for later in (shared_settings(study, task), study.students, own, condition, spec.settings):
        found = {key: value for key, value in found.items() if not _inside(key, later)} | {**later}
    return found


def _inside(key: str, later: Mapping[str, Any]) -> bool:
    """Whether a later key replaces the group that this one is in, as `first_stage` does `first_stage.task`."""
    return any(key.startswith(f"{whole}.") for whole in later)
