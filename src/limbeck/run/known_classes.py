"""What a run knows of its classes before the rows are read: what the recipe says, and the teacher's names.

Part of `limbeck.run`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from transformers import PretrainedConfig, PreTrainedModel

from limbeck.data import Labelling
from limbeck.recipe import Recipe
from limbeck.students import generic_labels, labels_of, read_config
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.support.given import is_reference
from limbeck.tasks import Task

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
