"""Which of a study's tasks are scored out of their domain as well. Part of `limbeck.lab.study`."""

from __future__ import annotations

import logging
from pathlib import Path

from limbeck.data import load_task
from limbeck.lab.study.study_fields import Study
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TASKS

log = logging.getLogger(__name__)


def tasks_beyond(study: Study) -> dict[str, str]:
    """Task → the one that its models are also scored on: of a study whose table shows such scores alone.

    Of a folder with GLUE's files the sets that lie in it count; a source that makes or fetches its rows has them all.

    Raises:
        LimbeckError: the folder has none of them, so that the table would be empty after all runs.
    """
    if study.table.out_of_domain != "alone":
        return {}
    wanted = {
        task: beyond
        for task in study.tasks
        if task in TASKS and (beyond := TASKS[task].out_of_domain) is not None
    }
    if study.data is None or not Path(study.data).is_dir():
        return wanted
    folder = study.data
    found = {task: beyond for task, beyond in wanted.items() if _lies_in(folder, beyond)}
    if wanted and not found:
        raise LimbeckError(
            f"table.out_of_domain: alone shows scores on {', '.join(wanted.values())}; {folder} has none of them",
            "put their folders beside the tasks' (docs/data.md says in which form), or take data: hub",
        )
    return found


def _lies_in(folder: str, task: str) -> bool:
    try:
        load_task(task, folder, for_training=False)
    except LimbeckError as error:  # not there, or damaged: what is wrong must be seen
        log.warning("no score on %s: %s", task, error.problems[0].message)
        return False
    return True
