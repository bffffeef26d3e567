"""What a finished run was trained to predict, with its student's order of the classes. Part of `limbeck.run`."""

from __future__ import annotations

from dataclasses import replace

from limbeck.data import Labelling, load_task
from limbeck.recipe import Recipe
from limbeck.run.known_classes import labelling_of, names_at
from limbeck.run.run_folder import RunFolder
from limbeck.tasks import TASKS, Task, as_kind, get_task


def student_labelling(recipe: Recipe, folder: RunFolder) -> Labelling:
    """Classes in the order of the student's head, whatever became of its teacher."""
    return replace(labelling_of(recipe), teacher=names_at(folder.student))


def own_task(recipe: Recipe, folder: RunFolder) -> Task:
    """The task that the run was trained on, of a user's own file as the file has it."""
    if recipe.task not in TASKS or recipe.text_columns or recipe.label_column:
        task, _ = load_task(
            recipe.task,
            recipe.data,
            text_columns=recipe.text_columns,
            label_column=recipe.label_column,
            kind=recipe.kind,
            labelling=student_labelling(recipe, folder),
            max_rows=recipe.max_rows,
            division=recipe.division,
        )
        return task
    return as_kind(get_task(str(recipe.task)), recipe.kind)
