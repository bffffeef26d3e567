"""Stored outputs in the place of teachers: opened, held against the data's classes, bound to its rows.

Part of `limbeck.run`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from datasets import Dataset

from limbeck import preflight
from limbeck.data.candidate_files import PASSAGE, QUERY
from limbeck.data.output_keys import OutputKeys, output_keys
from limbeck.data.outputs_file import MARGIN, QUANTITIES, FileOutputs, read_outputs_file
from limbeck.data.tables import SUFFIXES
from limbeck.data.unlabelled import ids_of
from limbeck.errors import LimbeckError, Problem
from limbeck.files import at_home, checksum
from limbeck.recipe import Recipe
from limbeck.run.named_teachers import ALONE, Named
from limbeck.run.stage_rows import EncodedRows
from limbeck.run.stored_targets import about_store, of_targets, token_problems
from limbeck.run.stored_term_checks import task_problems, term_problems
from limbeck.tasks import Processor, Results, Task, get_task_type
from limbeck.tasks.no_labels import labelled_rows
from limbeck.teachers import short_names
from limbeck.teachers.outputs import OutputStore, open_store
from limbeck.teachers.outputs.columns import LOGITS
from limbeck.teachers.outputs.given_outputs import GivenOutputs, in_order
from limbeck.teachers.outputs.stored_layers import StoredLayers
from limbeck.teachers.outputs.stored_teacher import StoredTeacher

_GIB = 2**30


def stored_teachers(recipe: Recipe, task: Task, tokenizer: Processor) -> list[Named]:
    """A teacher for each of a recipe's outputs; several are told apart by their names.

    Raises:
        LimbeckError: outputs that cannot be read, or whose classes are not the data's; terms that need more
            of a teacher than outputs.
    """
    places = recipe.outputs or []
    problems, stored = task_problems(task), _as_stored(task)
    teachers = []
    for place in places if not problems else ():
        try:
            outputs = open_outputs(place, stored, recipe)
            # Of other texts than the student's there is no layer to compare.
            own = outputs if stored is task else replace(outputs, layers=None)
            teachers.append(StoredTeacher(own))
        except LimbeckError as error:
            problems += error.problems
    for teacher in teachers:
        problems += term_problems(recipe, task, teacher.outputs)
        problems += token_problems(recipe, teacher.outputs, tokenizer)
    if problems:
        raise LimbeckError(list(dict.fromkeys(problems)))
    names = [ALONE] if recipe.team is None else short_names(places)
    return [
        Named(name, place, teacher, tokenizer)
        for name, place, teacher in zip(names, places, teachers, strict=True)
    ]


def _as_stored(task: Task) -> Task:
    """The task as of which outputs are stored: its own, or of a query with a passage in each row."""
    kind = task.kind.stored_as
    return task if kind is task.kind else replace(task, kind=kind, text_columns=(QUERY, PASSAGE))


def open_outputs(place: str, task: Task, recipe: Recipe) -> GivenOutputs:
    """The outputs in a store or a file, as the task has its classes.

    Raises:
        LimbeckError: they cannot be read, or are of other classes or another type of task.
    """
    if "://" not in place and not at_home(place).exists():
        raise LimbeckError(f"outputs: {place} does not exist", "check the path")
    if Path(place).suffix.lower() in SUFFIXES and at_home(place).is_file():
        return _of_file(place, task, recipe)
    return _of_store(place, task, recipe)


def _of_file(place: str, task: Task, recipe: Recipe) -> GivenOutputs:
    if task.kind.classes_as_text:
        raise LimbeckError(
            f"outputs: {place} is a file, and {task.name} is of kind {task.kind.name}: its teacher has logits over a "
            "vocabulary at every token of a target",
            "name the store that `limbeck label --outputs logits:top64` of a text-to-text teacher makes, or read the "
            "task as kind sentence",
        )
    path = at_home(place)
    order = recipe.output_classes or [str(name) for name in recipe.classes or ()]
    # As the user's own file calls them; of candidates the columns of triplets are more.
    named = recipe.text_columns or ()
    fits = len(named) == len(task.text_columns) or (task.kind.candidates and len(named) > 2)
    texts = named if fits else task.text_columns
    found = read_outputs_file(
        path,
        texts,
        classes=task.labels,
        order=order,
        max_rows=recipe.max_rows,
        several=task.kind.several_classes,
        candidates=task.kind.candidates is not None,
    )
    columns = _columns(place, found.what, found.classes, task)
    about = {"file": path.name, "checksum": checksum(path), "classes": [*found.classes]}
    read = partial(_rows_of, found, columns)
    return GivenOutputs(
        place,
        found.what,
        task.labels,
        found.ids,
        read,
        about,
        several=task.kind.several_classes,
        lists=found.lists,
    )


def _rows_of(found: FileOutputs, columns: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return found.values[np.searchsorted(found.ids, ids)][:, columns]


def _of_store(place: str, task: Task, recipe: Recipe) -> GivenOutputs:
    store = open_store(place)
    if not _answers(store, task):
        raise LimbeckError(
            f"outputs: {place} is of task type {store.kind}, and {task.name} is {task.kind.name}",
            f"name outputs of type {task.kind.name}",
        )
    if recipe.output_classes and store.classes and [*store.classes] != recipe.output_classes:
        raise LimbeckError(
            f"output_classes: {', '.join(recipe.output_classes)}; {place} itself says "
            f"{', '.join(store.classes)}",
            "leave it out",
        )
    if task.kind.classes_as_text:
        return of_targets(place, store, task, int(recipe.cache_limit * _GIB))
    stored = [column.name for column in store.columns]
    what = next((name for name in QUANTITIES if name in stored), None)
    if what is None:
        raise LimbeckError(
            f"outputs: {place} holds {', '.join(stored) or 'nothing'}, and none of {', '.join(QUANTITIES)}",
            f"label again with --outputs {LOGITS}",
        )
    classes = store.classes or tuple(recipe.output_classes or ())
    # What a regression's model gives is a number, whatever its output is called.
    columns = _columns(place, "score" if task.regression else what, classes, task)
    about = about_store(store) | {"classes": [*classes]}
    read = partial(_taken, store, what, columns)
    return GivenOutputs(
        place,
        what,
        task.labels,
        np.unique(store.row_ids),
        read,
        about,
        StoredLayers.of(store, int(recipe.cache_limit * _GIB)),
        several=task.kind.several_classes,
    )


def _answers(store: OutputStore, task: Task) -> bool:
    """Whether a store is of the task's type, or both are numbers of one head: a cross-encoder made elsewhere does not
    say whether its number is a score of a candidate or a regression.
    """
    if store.kind == task.kind.name:
        return True
    numbers = task.regression and not store.classes
    return numbers and get_task_type(store.kind).auto is task.kind.auto


def _taken(store: OutputStore, what: str, columns: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return store.take(ids, [what])[what][:, columns]


def _columns(place: str, what: str, classes: Sequence[str], task: Task) -> np.ndarray:
    """Which stored values are those of the data's classes, in their order."""
    if (what in ("score", MARGIN)) != task.regression:
        of = "numbers" if task.regression else f"the classes {', '.join(task.labels)}"
        raise LimbeckError(
            f"outputs: {place} holds {what}, and the labels of {task.name} are {of}",
            "name outputs of this task",
        )
    return np.array([0]) if task.regression else in_order(place, classes, task.labels)


# ---- rows ----


def with_outputs(recipe: Recipe, task: Task, rows: Dataset, named: Sequence[Named]) -> Dataset:
    """The training rows of which every stored teacher knows something; all of them unless `missing_outputs` is drop.

    Raises:
        LimbeckError: none is left; rows without outputs, unless they are to be dropped.
    """
    stored = [one.teacher for one in named if isinstance(one.teacher, StoredTeacher)]
    if not stored:
        return rows
    keys = output_keys(task, rows)
    known = [_rows_known(teacher, task, rows, keys) for teacher in stored]
    if recipe.missing_outputs == "error":
        problems = [
            Problem(
                f"outputs: {teacher.outputs.place} {_unknown(teacher)} {int((~found).sum())} of {len(rows)} "
                f"training rows, the first of them {_said(task, rows, int(found.argmin()))}",
                "label these rows too (`limbeck label`), or leave them out: missing_outputs=drop",
            )
            for teacher, found in zip(stored, known, strict=True)
            if not found.all()
        ]
        if problems:
            raise LimbeckError(problems)
        return rows
    kept = np.flatnonzero(np.logical_and.reduce(known))
    if not len(kept):
        raise LimbeckError(
            f"missing_outputs: drop leaves none of {len(rows)} training rows",
            "check that texts and text columns are those that were labelled",
        )
    return rows if len(kept) == len(rows) else rows.select(kept)


def _rows_known(teacher: StoredTeacher, task: Task, rows: Dataset, keys: OutputKeys) -> np.ndarray:
    """Which rows a teacher knows all about that its terms compare, boolean (n,)."""
    outputs = teacher.outputs
    if outputs.lists is None:
        return keys.rows_known(outputs.known(keys.ids), len(rows))
    groups = keys.groups(task, rows)
    return keys.rows_known(outputs.known_together(keys.ids, groups), len(rows))


def _unknown(teacher: StoredTeacher) -> str:
    if teacher.outputs.lists is None:
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
    assert isinstance(one.teacher, StoredTeacher)
    keys = output_keys(rows.task, rows.raw)
    return replace(one, teacher=one.teacher.on_rows(keys.examples, keys.ids, keys.silent))


# ---- what is said of them ----


def order_problems(task: Task, rows: Dataset, named: Sequence[Named]) -> list[Problem]:
    """Outputs that fit the training rows' own labels much better with the classes in another order."""
    stored = [one for one in named if isinstance(one.teacher, StoredTeacher)]
    if not stored or task.regression or task.kind.classes_as_text:
        return []
    if task.kind.stored_as is not task.kind:  # the outputs are of no classes
        return []
    if task.label_column not in rows.column_names:
        return []
    labels = np.asarray(rows.with_format("numpy")[task.label_column][:])
    labelled = np.flatnonzero(labelled_rows(labels))
    if not len(labelled):
        return []
    ids = ids_of(task, rows.select(labelled))
    problems = []
    for one in stored:
        assert isinstance(one.teacher, StoredTeacher)
        said = one.teacher.outputs.logits(ids)
        given = preflight.TeacherOutputs(said, labels[labelled], "on training rows")
        problems += preflight.check_class_order(
            task,
            given,
            side=f"outputs: {one.teacher.outputs.place}",
            fix="put the class names of these outputs in their order, or label with the right teacher",
        )
    return problems


def stored_results(one: Named, task: Task, rows: Dataset) -> Results | None:
    """Scores and predictions of stored outputs on a split; None where they do not know all its rows, or it has
    no labels.

    Nor are there any of a text-to-text teacher, of whom nobody stored what it would write by itself, and of one whose
    outputs are of other rows.
    """
    assert isinstance(one.teacher, StoredTeacher)
    if task.kind.classes_as_text or task.kind.stored_as is not task.kind:
        return None
    if task.label_column not in rows.column_names:
        return None
    keys = output_keys(task, rows)
    ids = keys.ids
    if not _rows_known(one.teacher, task, rows, keys).all():
        return None
    logits = one.teacher.outputs.logits(ids)
    return task.kind.results_of_rows(task, logits, rows)
