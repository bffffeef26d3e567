"""Whether a text-to-text teacher labels, so that rows need the text that its decoder writes. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from limbeck.data.text_rows import TextRows, read_target_rows
from limbeck.outputs.columns import LOGITS
from limbeck.recipe import Recipe
from limbeck.records.runs_meant import members_at
from limbeck.students import read_config
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import TEXT, kind_of_config
from limbeck.teachers.labeller import KeepsTokens, Labeller


def writes_targets(teachers: Sequence[str | Labeller], outputs: Sequence[str] | None) -> bool:
    """Whether one of them answers in words; its layers alone need no targets."""
    if outputs and not any(word.split(":")[0] == LOGITS for word in outputs):
        return False
    paths = [path for one in teachers if isinstance(one, str) for path in members_at(one)]
    return any(isinstance(one, KeepsTokens) for one in teachers) or any(
        kind_of_config(read_config(path)) is TEXT for path in paths
    )


def target_rows(
    teachers: Sequence[str | Labeller],
    data: str | Path | None,
    *,
    task: str | None,
    text_columns: Sequence[str],
    label_column: str | None,
    unlabelled: Sequence[str | Path],
    to: str | Path | None,
    max_rows: int,
) -> tuple[str, TextRows]:
    """The task's name in the prompts, and rows with targets.

    Args:
        task: by default that of the teacher's own run.

    Raises:
        LimbeckError: several teachers, rows without targets, a table of labels, a task without a name, or as
            `read_target_rows`.
    """
    named = next((one for one in teachers if isinstance(one, str)), None)
    records = {} if named is None else members_at(named)
    problems = []
    if len(teachers) > 1 or len(records) > 1:
        problems.append(
            Problem(
                "teacher: several, and of parts of a vocabulary there is no mean",
                "label with one text-to-text teacher",
            )
        )
    if unlabelled or data is None:
        problems.append(
            Problem(
                "unlabelled: a text-to-text teacher is asked for each token of a row's target, which these rows lack",
                "give labelled rows with --data; `limbeck predict` writes what the model itself answers",
            )
        )
    if to is not None:
        problems.append(
            Problem(
                "to: a text-to-text teacher is asked about the targets that are there, so there are no labels to write",
                "leave it out; `limbeck predict` writes what the model itself answers",
            )
        )
    if problems:
        raise LimbeckError(problems)
    assert data is not None  # refused above
    for path, record in records.items():
        own = None if record is None else Recipe.recorded(record.recipe, path)
        task = task or (None if own is None else own.task)
    found, rows = read_target_rows(
        data, task=task, text_columns=text_columns, label_column=label_column, max_rows=max_rows
    )
    return found.name, rows
