"""Which stored values are those of the data's classes. Part of `limbeck.run`.

Names are held against the data's as a live teacher's are (`limbeck.students.class_places`). What they leave open
`output_classes` says: how the data calls the outputs' classes, in the outputs' order.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from limbeck.data.outputs_file import MARGIN
from limbeck.recipe import Recipe
from limbeck.students import class_places, numbered_places, places_by_name
from limbeck.support.errors import LimbeckError
from limbeck.tasks import Task

log = logging.getLogger(__name__)


def columns_of(
    place: str, what: str, classes: Sequence[str], width: int, task: Task, recipe: Recipe
) -> np.ndarray:
    """Which stored values are those of the data's classes, int64 (C,), in their order.

    Args:
        place: where the outputs are.
        what: what is stored of each class, or a number.
        classes: how the outputs call them, in their order; () where they do not.
        width: how many values stand there for a row.

    Raises:
        LimbeckError: numbers for classes or the other way round; classes that are not the data's, with both lists.
    """
    if (what in ("score", MARGIN)) != task.regression:
        of = "numbers" if task.regression else f"the classes {', '.join(task.labels)}"
        raise LimbeckError(
            f"outputs: {place} holds {what}, and the labels of {task.name} are {of}",
            "name outputs of this task",
        )
    if task.regression:
        return np.array([0])
    return np.array(_places(place, classes, width, task.labels, recipe), dtype=np.int64)


def _places(
    place: str, classes: Sequence[str], width: int, wanted: Sequence[str], recipe: Recipe
) -> list[int]:
    by_name, said = places_by_name(classes, wanted), recipe.output_classes
    if by_name is not None:
        # Of a team's outputs the order may be meant for the others.
        if said and recipe.team is None and places_by_name(said, wanted) != by_name:
            raise LimbeckError(
                f"output_classes: {', '.join(said)}; {place} itself says {', '.join(classes)}, which are the data's",
                "leave it out",
            )
        return by_name
    if said:
        return _as_said(place, said, classes, width, wanted)
    found = class_places(classes, wanted)
    if found is None:
        raise LimbeckError(
            f"outputs: {place} holds the classes {', '.join(classes) or 'of no name'}; the data's are "
            f"{', '.join(wanted)}",
            _other_names(classes, wanted),
        )
    log.warning(
        "outputs: the classes of %s have no names (%s) and are taken in the data's order, %s; "
        "output_classes='[CLASS, CLASS, …]' says another one",
        place, ", ".join(classes[at] for at in found), ", ".join(wanted),
    )  # fmt: skip
    return found


def _as_said(
    place: str, said: Sequence[str], classes: Sequence[str], width: int, wanted: Sequence[str]
) -> list[int]:
    """The places of classes that `output_classes` names one after the other."""
    places = places_by_name(said, wanted)
    if places is None:
        raise LimbeckError(
            f"output_classes: {', '.join(said)}; the data's classes are {', '.join(wanted)}"
            + (f", those of {place} {', '.join(classes)}" if classes else ""),
            "name each of the data's classes once, in the order of the outputs",
        )
    if len(said) != width:
        raise LimbeckError(
            f"output_classes: {', '.join(said)} are {len(said)}, and {place} holds {width}"
            + (f": {', '.join(classes)}" if classes else " without names"),
            "name outputs of the data's classes",
        )
    order = numbered_places(classes) if classes else [*range(width)]
    return [order[place] for place in places]


def _other_names(classes: Sequence[str], wanted: Sequence[str]) -> str:
    """What helps where outputs have other classes than the data."""
    if not classes:
        return f"say their order: output_classes='[{', '.join(wanted)}]', or whatever it is"
    if len(classes) == len(wanted):
        return (
            "if they mean the same, say what the data calls them, in the order of the outputs: "
            "output_classes='[CLASS, CLASS, …]'; else name outputs of this task"
        )
    if set(wanted) < set(classes):
        return (
            "if the data's rows are of some of them alone, name all of them: "
            f"classes='[{', '.join(classes)}]'; else name outputs of this task"
        )
    return "name outputs of this task"
