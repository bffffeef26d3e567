"""A store of outputs in a teacher's place: which of a team's members is meant, and what it holds of them.

Part of `limbeck.run`.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from limbeck.data.outputs_file import QUANTITIES, check_votes, quantities
from limbeck.outputs import OutputStore, open_store
from limbeck.outputs.columns import LOGITS
from limbeck.outputs.store import place_and_member
from limbeck.outputs.stored_teacher import GivenOutputs, StoredLayers
from limbeck.recipe import Recipe
from limbeck.run.stored_classes import columns_of
from limbeck.run.stored_targets import about_store, of_targets
from limbeck.support.errors import LimbeckError
from limbeck.support.files import at_home
from limbeck.tasks import Task, get_task_type

_GIB = 2**30


def outputs_of_store(place: str, task: Task, recipe: Recipe) -> GivenOutputs:
    """The outputs in a store, `STORE`, or those of one member of the team that it holds, `STORE#MEMBER`.

    Raises:
        LimbeckError: they cannot be read, or are of other classes or another type of task.
    """
    where, member = place_and_member(place)
    if "://" not in where and not at_home(where).exists():
        raise LimbeckError(f"outputs: {where} does not exist", "check the path")
    store = open_store(where)
    if not _answers(store, task):
        raise LimbeckError(
            f"outputs: {place} is of task type {store.kind}, and {task.name} is {task.kind.name}",
            f"name outputs of type {task.kind.name}",
        )
    limit = int(recipe.cache_limit * _GIB)
    if task.kind.classes_as_text:
        return of_targets(place, store, task, limit)
    names, several = store.outputs_of(member), task.kind.several_classes
    what = next((name for name in quantities(several=several) if name in names), None)
    if what is None:
        raise _nothing_to_read(place, store, [*names])
    check_votes(place, what, several=several)
    name = names[what]
    column = store.manifest.column(name)
    assert column is not None  # one of the store's own
    classes = store.classes or tuple(recipe.output_classes or ())
    # What a regression's model gives is a number, whatever its output is called.
    held = "score" if task.regression else what
    columns = columns_of(place, held, store.classes, column.sizes()[-1], task, recipe)
    about = about_store(store) | {"classes": [*classes]} | ({"member": member} if member else {})
    return GivenOutputs(
        place,
        what,
        task.labels,
        np.unique(store.row_ids),
        partial(_taken, store, name, columns),
        about,
        None if member else StoredLayers.of(store, limit),
        several=several,
    )


def _answers(store: OutputStore, task: Task) -> bool:
    """Whether a store is of the task's type, or both are numbers of one head: a cross-encoder made elsewhere does not
    say whether its number is a score of a candidate or a regression.
    """
    if store.kind == task.kind.name:
        return True
    numbers = task.regression and not store.classes
    return numbers and get_task_type(store.kind).auto is task.kind.auto


def _nothing_to_read(place: str, store: OutputStore, held: list[str]) -> LimbeckError:
    fix = f"label again with --outputs {LOGITS}"
    if store.members:
        fix += f"; or name its members: {store.files.url}#{store.members[0]}"
    return LimbeckError(
        f"outputs: {place} holds {', '.join(held) or 'nothing'}, and none of {', '.join(QUANTITIES)}",
        fix,
    )


def _taken(store: OutputStore, name: str, columns: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return store.take(ids, [name])[name][:, columns]
