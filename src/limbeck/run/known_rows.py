"""Rows that stored outputs know: those that are trained on, a stage's, and what is said of the outputs about them.

Part of `limbeck.run`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from datasets import Dataset

from limbeck import preflight
from limbeck.data.row_ids import OutputKeys, ids_of, output_keys
from limbeck.outputs.stored_teacher import UNKNOWN_ROWS_FIX, GivenOutputs
from limbeck.recipe import Recipe, Stage
from limbeck.run.rows import EncodedRows
from limbeck.run.teachers import Named
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import Results, Task
from limbeck.tasks.abstract_type import labelled_rows
from limbeck.tasks.rules import ROW

# Where not one row has outputs, to leave those without out leaves nothing.
_FIX_OF_NONE = "check that texts and text columns are those that were labelled, or label these rows (`limbeck label`)"
_OWN_TEACHER = "; or give this stage a teacher of its own: first_stage.teacher=DIR"


def with_outputs(
    recipe: Recipe, task: Task, rows: Dataset, named: Sequence[Named], stage: Stage | None = None
) -> Dataset:
    """The training rows of which every stored teacher knows something; all of them unless `missing_outputs` is drop.

    Args:
        stage: whose own rows they are; None of the run's.

    Raises:
        LimbeckError: none is left; rows without outputs, unless they are to be dropped.
    """
    stored = [one.teacher.outputs for one in named if one.stored]
    if not stored:
        return rows
    known = [_rows_known(outputs, task, rows) for outputs in stored]
    kept = np.flatnonzero(np.logical_and.reduce(known))
    if recipe.missing_outputs == "error":
        fix = UNKNOWN_ROWS_FIX if len(kept) else _FIX_OF_NONE
        problems = [
            Problem(
                f"{_whose(stage)}outputs: {outputs.place} {_unknown(outputs)} {int((~found).sum())} of "
                f"{len(rows)} training rows, the first of them {_said(task, rows, int(found.argmin()))}",
                fix + _OWN_TEACHER * (stage is not None),
            )
            for outputs, found in zip(stored, known, strict=True)
            if not found.all()
        ]
        if problems:
            raise LimbeckError(problems)
        return rows
    if not len(kept):
        raise LimbeckError(
            f"{_whose(stage)}missing_outputs: drop leaves none of {len(rows)} training rows",
            _FIX_OF_NONE + _OWN_TEACHER * (stage is not None),
        )
    return rows if len(kept) == len(rows) else rows.select(kept)


def _whose(stage: Stage | None) -> str:
    """What stands before a message about rows that one stage alone has: `first_stage: `."""
    return "" if stage is None else stage.setting.replace(".", ": ")


def _keys(outputs: GivenOutputs, task: Task, rows: Dataset) -> OutputKeys:
    """By which ids outputs are found for the examples of some rows."""
    return output_keys(task, rows, alone=outputs.embedding > 0)


def _rows_known(outputs: GivenOutputs, task: Task, rows: Dataset) -> np.ndarray:
    """Which rows outputs say all about that terms compare, boolean (n,)."""
    keys = _keys(outputs, task, rows)
    if outputs.lists is None:
        return keys.rows_known(outputs.known(keys.ids), len(rows))
    groups = keys.groups(task, rows)
    return keys.rows_known(outputs.known_together(keys.ids, groups), len(rows))


def _unknown(outputs: GivenOutputs) -> str:
    if outputs.lists is None:
        return "knows nothing of"
    return "holds no margins that tie the query's other passages to"


def _said(task: Task, rows: Dataset, place: int) -> str:
    """What a row says, shortened."""
    row = rows[place]
    return " | ".join(
        repr(textwrap.shorten(row[name], 60, placeholder=" …")) for name in task.text_columns
    )


def bound_to(one: Named, rows: EncodedRows) -> Named:
    """A stored teacher for the rows of a stage.

    Raises:
        LimbeckError: rows of which it knows nothing.
    """
    keys = _keys(one.teacher.outputs, rows.task, rows.raw)
    return replace(one, teacher=one.teacher.on_rows(keys.examples, keys.ids, keys.silent))


# ---- what is said of them ----


def order_problems(task: Task, rows: Dataset, named: Sequence[Named]) -> list[Problem]:
    """Outputs that fit the training rows' own labels much better with the classes in another order."""
    stored = [one.teacher.outputs for one in named if one.stored]
    of_classes = bool(task.kind.class_names(task.labels))
    if not stored or not of_classes or task.kind.stored_as is not task.kind:
        return []
    if task.label_column not in rows.column_names:
        return []
    labels = np.asarray(rows.with_format("numpy")[task.label_column][:])
    labelled = np.flatnonzero(labelled_rows(labels))
    if not len(labelled):
        return []
    ids = ids_of(task, rows.select(labelled))
    problems = []
    for outputs in stored:
        said = outputs.logits(ids)
        given = preflight.TeacherOutputs(said, labels[labelled], "on training rows")
        problems += preflight.check_class_order(
            task,
            given,
            side=f"outputs: {outputs.place}",
            fix="put the class names of these outputs in their order (of classes without the data's names: "
            "output_classes='[CLASS, CLASS, …]'), or label with the right teacher",
        )
    return problems


def left_out_problems(left_out: int, kept: int) -> list[Problem]:
    """How many training rows `missing_outputs: drop` leaves out: most of them, where texts are written otherwise."""
    if not left_out:
        return []
    return [
        Problem(
            f"missing_outputs: {left_out:,} of {left_out + kept:,} training rows are left out, as the "
            "stored outputs say nothing of them",
            "label them too, compare how the texts of both are written, or accept it",
            "warning",
        )
    ]


def stored_results(one: Named, task: Task, rows: Dataset) -> Results | None:
    """Scores and predictions of stored outputs on a split; None where they do not know all its rows, or it has
    no labels.

    Nor are there any of a text-to-text teacher, of whom nobody stored what it would write by itself, and of one whose
    outputs are of other rows.
    """
    outputs = one.teacher.outputs
    answers = task.kind.stored_as is task.kind or outputs.embedding
    if task.kind.key_columns or not answers or task.label_column not in rows.column_names:
        return None
    if not _rows_known(outputs, task, rows).all():
        return None
    keys = _keys(outputs, task, rows)
    logits = outputs.logits(keys.ids)
    if not outputs.embedding:
        return task.kind.results_of_rows(task, logits, rows)
    texts = Dataset.from_dict({ROW: np.asarray(rows["index"][:])[keys.rows]})
    return task.kind.results(task, logits, texts, rows, one.tokenizer)
