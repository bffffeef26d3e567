"""Settings that a run cannot do without. Part of `limbeck.run`."""

from __future__ import annotations

from limbeck.data.load import is_absent, no_source
from limbeck.data.on_disk import folder_without_task
from limbeck.data.unlabelled import text_files
from limbeck.lab.augmentation import FROM_TEACHER
from limbeck.recipe import Recipe
from limbeck.run.named_teachers import learns_from_its_teacher
from limbeck.run.student_start import start_problems
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home, no_such_file
from limbeck.support.given import place_of
from limbeck.training import tracker_problems


def _sources(recipe: Recipe) -> list[Problem]:
    """Files that are not there, and data whose task nobody named."""
    problems: list[Problem] = []
    path = at_home(place_of(recipe.data))
    if is_absent(recipe.data):
        problems.append(no_source(recipe.data))
    elif recipe.task is None:
        problems.append(
            folder_without_task(path)
            if path.is_dir()
            else Problem("task: none is given", "add --task mrpc, or task: in the recipe")
        )
    for split, named in (("dev", recipe.dev), ("test", recipe.test)):
        if named is not None and not at_home(place_of(named)).exists():
            problems.append(no_such_file(split, named))
    try:
        text_files(recipe.unlabelled)
    except LimbeckError as error:
        problems += error.problems
    return problems


def missing(recipe: Recipe) -> list[Problem]:
    """Settings a run cannot do without."""
    problems = _sources(recipe)
    if recipe.team is not None and recipe.teachers is None and not recipe.outputs:
        problems.append(
            Problem(
                f"teachers: method {recipe.method} learns from several, and none are given",
                "add --teachers FOLDER FOLDER …; `limbeck finetune` makes them; or --outputs STORE STORE …",
            )
        )
    if recipe.team is None and learns_from_its_teacher(recipe) and not any(recipe.taught_by):
        problems.append(
            Problem(
                f"teacher: method {recipe.method} learns from one, and none is given",
                "add --teacher FOLDER; `limbeck finetune` makes one; or --outputs STORE",
            )
        )
    if recipe.outputs and not learns_from_its_teacher(recipe):
        problems.append(
            Problem(
                f"outputs: no term of {recipe.method} learns from a teacher",
                "leave them out, or take a method that does (kd-soft)",
            )
        )
    if recipe.student.from_teacher and recipe.lead is None:
        problems.append(
            Problem(
                f"student.init: {recipe.student.init} needs a teacher, and none is given",
                "add --teacher FOLDER, or start from a checkpoint: --student FOLDER; stored outputs have no layers"
                if recipe.outputs
                else "add --teacher FOLDER, or start from a checkpoint: --student FOLDER",
            )
        )
    augment = recipe.augment
    if augment is not None and augment.model == FROM_TEACHER and recipe.lead is None:
        problems.append(
            Problem(
                "augment.model: teacher, and none is given",
                "add --teacher FOLDER, or name an encoder; stored outputs have no word vectors"
                if recipe.outputs
                else "add --teacher FOLDER, or name an encoder",
            )
        )
    return problems + start_problems(recipe) + tracker_problems(recipe.trackers)
