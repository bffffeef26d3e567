"""The teachers that a recipe names: loaded, called by short names, formed into a team.

Part of `limbeck.run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import PretrainedConfig, PreTrainedModel

from limbeck.data import Labelling
from limbeck.recipe import Recipe
from limbeck.run.student_source import processor_of
from limbeck.students import generic_labels, labels_of, load_model, read_config
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.support.given import is_reference
from limbeck.support.words import short_names
from limbeck.tasks import Processor, Task
from limbeck.teachers import Team, form
from limbeck.teachers.teacher import Teacher

ALONE = "teacher"
"""What a teacher is called where there is one."""


@dataclass(frozen=True)
class Named:
    """A teacher that the recipe names.

    `name`: in logs, messages and records. `path`: as the recipe has it.
    """

    name: str
    path: str
    teacher: Teacher
    tokenizer: Processor

    @property
    def setting(self) -> str:
        """What messages call it."""
        return ALONE if self.name == ALONE else f"teacher {self.name}"

    @property
    def stored(self) -> bool:
        """Whether nothing is there of it but stored outputs."""
        return self.teacher.outputs is not None

    def only(self, numbers: Sequence[int]) -> Named:
        """The same, of the rows with these numbers alone where it reads them by its own tokenizer."""
        words = self.teacher.own_tokens
        if words is None:
            return self
        return replace(self, teacher=self.teacher.reading(None, words.only(numbers)))


def learns_from_its_teacher(recipe: Recipe) -> bool:
    """Whether a stage learns from the run's own teacher: not if the only one that does has another."""
    return any(
        stage.recipe.needs_teacher and stage.recipe.taught_by == recipe.taught_by
        for stage in recipe.stages()
    )


def named_teachers(recipe: Recipe, task: Task, live_teacher: Teacher | None) -> list[Named]:
    """The teachers, loaded; several are told apart by their names.

    One that is given is there even for terms that ask none: the student can be compared with it.
    """
    if recipe.teachers and recipe.team is not None:
        paths, names = recipe.teachers, short_names(recipe.teachers)
    elif live_teacher is not None or _needs_teacher(recipe):
        paths, names = [str(recipe.teacher)], [ALONE]
    else:
        return []
    return [
        Named(
            name, path, _teacher(path, recipe, task, live_teacher), processor_of(recipe, task, path)
        )
        for name, path in zip(names, paths, strict=True)
    ]


def _teacher(path: str, recipe: Recipe, task: Task, live_teacher: Teacher | None) -> Teacher:
    """The one that is given is `recipe.teacher`, which may be one of several."""
    if live_teacher is not None and path == str(recipe.teacher):
        return live_teacher
    return Teacher(load_teacher(path, task), dropout=recipe.teacher_dropout)


def _needs_teacher(recipe: Recipe) -> bool:
    return learns_from_its_teacher(recipe) or recipe.student.from_teacher


def load_teacher(path: str, task: Task) -> PreTrainedModel:
    """A fine-tuned model with the task's head.

    Raises:
        LimbeckError: it cannot be read, or has no trained head.
    """
    return load_model(
        path,
        regression=task.one_number,
        head="required",
        auto=task.kind.of_teacher(read_config(path)).auto,
    )


def lead_model(recipe: Recipe, task: Task, named: list[Named]) -> PreTrainedModel | None:
    """The model that gives a student its layers or its configuration, if one does."""
    if not recipe.student.from_teacher:
        return None
    known = next((one for one in named if one.path == recipe.lead), None)
    if task.kind.of_teacher(read_config(str(recipe.lead))) is not task.kind:
        raise LimbeckError(
            f"student.init: it would start from {recipe.lead}, a cross-encoder, which gives no embedding of a text",
            "name an encoder or an embedding model: --student PATH",
        )
    return load_teacher(str(recipe.lead), task) if known is None else known.teacher.model


def form_team(recipe: Recipe, named: Sequence[Named]) -> Teacher | Team | None:
    """Whoever teaches the run, as its recipe has it; where scores decide, all count alike as yet.

    In a chain it is the smallest, in whose place its distilled form is put later.
    """
    members, names = [one.teacher for one in named], [one.name for one in named]
    if recipe.team is None:
        return members[0] if members else None
    return form(recipe.team, members, names)


# What a run knows of its classes before the rows are read: what the recipe says, and the teacher names.

_HEAD = "Classification"


def labelling_of(recipe: Recipe) -> Labelling:
    """The classes that the recipe names, or whether there are any; and the names of its (first) teacher's."""
    given = Labelling(
        tuple(map(str, recipe.classes or ())), recipe.labels, separator=recipe.label_separator
    )
    path = recipe.teachers[0] if recipe.teachers else recipe.teacher
    if recipe.outputs:  # by name, in whatever order the data's are
        path = None
    # Only data of the user's own have classes to find.
    own = is_reference(recipe.data) or at_home(recipe.data).exists()
    if path is None or not own:
        return given
    return replace(given, teacher=names_at(path))


def names_at(path: str | Path) -> tuple[str, ...]:
    """What a checkpoint calls its outputs, in id order; () where it cannot be read or has no such head."""
    try:
        return names_of(read_config(path))
    except LimbeckError:  # said when the model itself is loaded
        return ()


def names_of(config: PretrainedConfig) -> tuple[str, ...]:
    """What a classifier calls its outputs, in id order; () for another head."""
    heads = config.architectures or []
    return labels_of(config) if any(name.endswith(_HEAD) for name in heads) else ()


def names_for_students(teacher: PreTrainedModel | None, task: Task) -> Task:
    """The task with its teacher's names of the classes, which its students inherit; id by id.

    Whether ids mean the same on both sides is for pre-flight to say.
    """
    if teacher is None:
        return task
    names = task.kind.class_names(labels_of(teacher.config))
    if not names or len(names) != len(task.labels) or generic_labels(names):
        return task
    return replace(task, labels=names)
