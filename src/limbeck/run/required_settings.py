"""Settings that a run cannot do without. Part of `limbeck.run`."""

from collections.abc import Iterator

from limbeck.data.load import is_absent, no_source
from limbeck.data.own import folder_without_task
from limbeck.data.text_rows import row_files
from limbeck.recipe import Recipe, StudentSpec
from limbeck.recipe.paper_settings import stated_of
from limbeck.run.models import learns_from_its_teacher
from limbeck.students import names_cnn, resolve_checkpoint, starts_random
from limbeck.support.errors import LimbeckError, Problem, problem_list
from limbeck.support.files import at_home, no_such_file
from limbeck.support.given import place_of
from limbeck.training import tracker_problems
from limbeck.training.assistant_start import recorded_start


@problem_list
def missing(recipe: Recipe) -> Iterator[Problem]:
    """Settings a run cannot do without, and files that are not there."""
    path = at_home(place_of(recipe.data))
    if is_absent(recipe.data):
        yield no_source(recipe.data)
    elif recipe.task is None and path.is_dir():
        yield folder_without_task(path)
    elif recipe.task is None:
        yield Problem("task: none is given", "add --task mrpc, or task: in the recipe")
    for split, named in (("dev", recipe.dev), ("test", recipe.test)):
        if named is not None and not at_home(place_of(named)).exists():
            yield no_such_file(split, named)
    try:
        row_files(recipe.unlabelled, "unlabelled")
    except LimbeckError as error:
        yield from error.problems
    taught = learns_from_its_teacher(recipe)
    if recipe.team is not None and recipe.teachers is None and not recipe.outputs:
        yield Problem(
            f"teachers: method {recipe.method} learns from several, and none are given",
            "add --teachers FOLDER FOLDER …; `limbeck finetune` makes them; or --outputs STORE STORE …",
        )
    if recipe.team is None and taught and not any(recipe.taught_by):
        yield Problem(
            f"teacher: method {recipe.method} learns from one, and none is given",
            "add --teacher FOLDER; `limbeck finetune` makes one; or --outputs STORE",
        )
    if recipe.outputs and not taught:
        yield Problem(
            f"outputs: no term of {recipe.method} learns from a teacher",
            "leave them out, or take a method that does (kd-soft)",
        )
    if recipe.student.from_teacher and recipe.lead is None:
        stored = "; stored outputs have no layers" if recipe.outputs else ""
        yield Problem(
            f"student.init: {recipe.student.init} needs a teacher, and none is given",
            f"add --teacher FOLDER, or start from a checkpoint: --student FOLDER{stored}",
        )
    yield from start_problems(recipe) + tracker_problems(recipe.report_to)


# The checkpoint that a student starts from where the recipe does not name one. Papers start
# students from the pretrained encoder that their teacher was fine-tuned from, which the teacher's
# run remembers, or from a checkpoint of its own, which the user has to name.


PRETRAINED = "pretrained"
NAMED_BY_THE_USER = {
    "distilled": "an already distilled checkpoint",
    "smaller": "a smaller pretrained checkpoint",
}
"""Starts that papers have and no teacher leads to."""


def with_start(recipe: Recipe) -> Recipe:
    """The recipe with the pretrained checkpoint's name where it says `student.init: pretrained`.

    One that is not found stays as it is, for `start_problems` to say why.
    """
    if recipe.student.init != PRETRAINED:
        return recipe
    found = _origin(recipe.lead)
    if isinstance(found, Problem):
        return recipe
    tokenizer = recipe.student.tokenizer or found.tokenizer
    student = recipe.student.model_copy(update={"init": found.init, "tokenizer": tokenizer})
    return recipe.model_copy(update={"student": student})


@problem_list
def start_problems(recipe: Recipe) -> Iterator[Problem]:
    """Why there is nothing to start from; empty where there is."""
    init = recipe.student.init
    if init == PRETRAINED and isinstance(found := _origin(recipe.lead), Problem):
        yield found
    if init in NAMED_BY_THE_USER:
        stated = stated_of(recipe.method).get(recipe.settings)
        words = NAMED_BY_THE_USER[init] if stated is None else stated.start
        yield Problem(
            f"student.init: {init}, and no checkpoint is named to start from; settings "
            f"{recipe.settings} start from {words}",
            "name it: --student FOLDER or a Hub name; --student teacher starts from the teacher's "
            "layers instead",
        )


def _origin(teacher: str | None) -> StudentSpec | Problem:
    """What a teacher was before it was fine-tuned, or why that is not known."""

    def unknown_because(reason: str) -> Problem:
        return Problem(
            f"student.init: {PRETRAINED} is what the teacher was fine-tuned from, and {reason}",
            "name the pretrained encoder: --student FOLDER or a Hub name (--model for finetune)",
        )

    if teacher is None:
        return Problem(
            "model: none is given to start from",
            "add --model FOLDER or a Hub name, a pretrained encoder (student.init in a recipe); for random weights "
            "a shape, such as bert-4-256-4:random",
        )
    try:
        found = recorded_start(teacher)
    except LimbeckError:
        return unknown_because(f"the record of {teacher} does not say it")
    if found is None:
        return unknown_because(f"{teacher} has no record of a run")
    spec, _ = found
    if spec.from_teacher:
        return unknown_because(f"{teacher} started from a teacher of its own")
    if starts_random(spec.init) or names_cnn(spec.init):
        return unknown_because(f"{teacher} started from random weights")
    if spec.layers is not None:
        return unknown_because(f"{teacher} has only some layers of {spec.init}")
    try:
        resolve_checkpoint(spec.init)
    except LimbeckError as error:
        return unknown_because(f"that is gone: {error.problems[0].message}")
    return spec
