"""The checkpoint that a student starts from where the recipe does not name one.

Part of `limbeck.run`. Papers start students from the pretrained encoder that their teacher was
fine-tuned from, which the teacher's run remembers, or from a checkpoint of its own, which the user
has to name.
"""

from __future__ import annotations

from pydantic import ValidationError

from limbeck.lab.cifar_nets import SHAPES
from limbeck.recipe import Recipe, StudentSpec
from limbeck.recipe.paper_settings import stated_of
from limbeck.records import RECORD_NAME, Record
from limbeck.students import resolve_checkpoint, starts_random
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home

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


def start_problems(recipe: Recipe) -> list[Problem]:
    """Why there is nothing to start from; empty where there is."""
    init = recipe.student.init
    if init == PRETRAINED:
        found = _origin(recipe.lead)
        return [found] if isinstance(found, Problem) else []
    if init not in NAMED_BY_THE_USER:
        return []
    stated = stated_of(recipe.method).get(recipe.settings)
    words = NAMED_BY_THE_USER[init] if stated is None else stated.start
    return [
        Problem(
            f"student.init: {init}, and no checkpoint is named to start from; settings "
            f"{recipe.settings} start from {words}",
            "name it: --student FOLDER or a Hub name; --student teacher starts from the teacher's "
            "layers instead",
        )
    ]


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
    folder = at_home(teacher)
    places = [place for place in (folder, folder.parent) if (place / RECORD_NAME).is_file()]
    if not folder.is_dir() or not places:
        return unknown_because(f"{teacher} has no record of a run")
    try:
        spec = StudentSpec.model_validate(Record.load(places[0]).recipe.get("student"))
    except (LimbeckError, ValidationError):
        return unknown_because(f"the record of {teacher} does not say it")
    if spec.from_teacher:
        return unknown_because(f"{teacher} started from a teacher of its own")
    if starts_random(spec.init) or spec.init in SHAPES:
        return unknown_because(f"{teacher} started from random weights")
    if spec.layers is not None:
        return unknown_because(f"{teacher} has only some layers of {spec.init}")
    try:
        resolve_checkpoint(spec.init)
    except LimbeckError as error:
        return unknown_because(f"that is gone: {error.problems[0].message}")
    return spec
