"""Stored outputs in the place of teachers: opened, and held against the data's classes.

Part of `limbeck.run`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from limbeck.data.candidate_files import PASSAGE, QUERY
from limbeck.data.endings import form_of
from limbeck.data.outputs_file import (
    EMBEDDING,
    FileOutputs,
    read_embeddings_file,
    read_outputs_file,
)
from limbeck.outputs.stored_teacher import GivenOutputs, StoredTeacher
from limbeck.recipe import Recipe
from limbeck.run.named_teachers import ALONE, Named
from limbeck.run.store_outputs import outputs_of_store
from limbeck.run.stored_classes import columns_of
from limbeck.run.stored_targets import token_problems
from limbeck.run.stored_term_checks import task_problems, term_problems
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home, checksum
from limbeck.support.words import short_names
from limbeck.tasks import Processor, Task


def stored_teachers(recipe: Recipe, task: Task, tokenizer: Processor) -> list[Named]:
    """A teacher for each of a recipe's outputs; several are told apart by their names.

    Raises:
        LimbeckError: outputs that cannot be read, or whose classes are not the data's; terms that need more
            of a teacher than outputs.
    """
    places = recipe.outputs or []
    problems, stored = [*task_problems(task), *_idle_order(recipe, task)], _as_stored(task)
    teachers = []
    for place in places if not problems else ():
        try:
            outputs = embeddings_of(place, recipe) if task.kind.embeds else None
            if outputs is None:
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


def _idle_order(recipe: Recipe, task: Task) -> list[Problem]:
    """An order of classes for outputs that have none."""
    if not recipe.output_classes or (task.labels and not task.kind.classes_as_text):
        return []
    return [
        Problem(
            f"output_classes: {', '.join(recipe.output_classes)}, and outputs for {task.name} are of no classes",
            "leave it out",
        )
    ]


def _as_stored(task: Task) -> Task:
    """The task as of which outputs are stored: its own, or of a query with a passage in each row."""
    kind = task.kind.stored_as
    return task if kind is task.kind else replace(task, kind=kind, text_columns=(QUERY, PASSAGE))


def embeddings_of(place: str, recipe: Recipe) -> GivenOutputs | None:
    """The embeddings in a file, of each text by itself; None where it holds something else.

    Raises:
        LimbeckError: they cannot be read.
    """
    path = at_home(place)
    if form_of(path) in (None, "text") or not path.is_file():
        return None
    found = read_embeddings_file(path, recipe.text_columns or (), recipe.max_rows)
    if found is None:
        return None
    width = found.values.shape[1]
    about = {"file": path.name, "checksum": checksum(path), "width": width}

    def read(ids: np.ndarray) -> np.ndarray:
        return found.values[np.searchsorted(found.ids, ids)]

    return GivenOutputs(place, EMBEDDING, (), found.ids, read, about, embedding=width)


def open_outputs(place: str, task: Task, recipe: Recipe) -> GivenOutputs:
    """The outputs in a store or a file, as the task has its classes.

    Raises:
        LimbeckError: they cannot be read, or are of other classes or another type of task.
    """
    if form_of(Path(place)) is not None and at_home(place).is_file():
        return _of_file(place, task, recipe)
    return outputs_of_store(place, task, recipe)


def _of_file(place: str, task: Task, recipe: Recipe) -> GivenOutputs:
    if task.kind.classes_as_text:
        raise LimbeckError(
            f"outputs: {place} is a file, and {task.name} is of kind {task.kind.name}: its teacher has logits over a "
            "vocabulary at every token of a target",
            "name the store that `limbeck label --outputs logits:top64` of a text-to-text teacher makes, or read the "
            "task as kind sentence",
        )
    path = at_home(place)
    order = recipe.output_classes or ()
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
    width = found.values.shape[1]
    columns = columns_of(place, found.what, found.classes, width, task, recipe)
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
