"""A run goes on, or counts as finished, with the rows and models that it began with. Part of `limbeck.run`."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping

from limbeck.data.row_facts import facts_of
from limbeck.outputs import add_model
from limbeck.recipe import Recipe
from limbeck.records import Record
from limbeck.run.earlier_run import EarlierRun
from limbeck.run.input_files import checksums_of_inputs
from limbeck.run.prepare import prepare
from limbeck.run.prepared import Prepared
from limbeck.run.run_folder import RunFolder
from limbeck.support.errors import LimbeckError
from limbeck.support.registry import checksum_of
from limbeck.teachers.teacher import Teacher

logger = logging.getLogger(__name__)

_ROWS = "training rows"
_DEV = "dev rows"
_FIRST_ROWS = "rows of the first stage"
_START = "student start"
_FIRST_TEACHER = "teacher of the first stage"
# What makes augmented examples is read when they are made, and no preparation holds what it says.
_UNSEEN = "augment."


def digests(prepared: Prepared) -> dict[str, str]:
    """What is read all through a run → what it was: rows as they are encoded, models' weights."""
    first = prepared.stages[0]
    rows = {_ROWS: prepared.train.encoded, _DEV: prepared.selecting}
    if not first.stage.same_rows:
        rows[_FIRST_ROWS] = first.rows.encoded
    models = {_START: prepared.student}
    models |= {one.setting: one.teacher.model for one in prepared.named}
    if first.own:
        models[_FIRST_TEACHER] = first.members[0].model
    found = {}
    for name, dataset in rows.items():
        digest = hashlib.blake2b(digest_size=8)
        facts_of(dataset).add_to(digest)
        found[name] = digest.hexdigest()
    for name, model in models.items():
        digest = hashlib.blake2b(digest_size=8)
        add_model(digest, model)
        found[name] = digest.hexdigest()
    return found


def plugins_read(recipe: Recipe) -> dict[str, str]:
    """The files of Python that a recipe names → checksum of what was executed."""
    return {f"plugin {path}": checksum_of(path) for path in recipe.plugins}


def refuse_changed(folder: RunFolder, began: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise LimbeckError where checkpoints lie of a run that began with other rows or models.

    Half of a student would come from each, and the record would know of one.
    """
    changed = _differing(began, now)
    if changed and folder.begun:
        raise LimbeckError(
            f"out: {folder.path} holds a stopped run that began with other {' and '.join(changed)} "
            "than lie there now",
            "put back what it began with; or remove the folder, or choose another with --out, to "
            "begin again",
        )


def finished(
    recipe: Recipe,
    folder: RunFolder,
    *,
    overwrite: bool = False,
    live_teacher: Teacher | None = None,
    for_another: bool = False,
) -> Record | None:
    """As `EarlierRun.finished`, of a run whose rows and models are still what they were.

    Files with the checksums of then hold what they held; where some differ, the rows and the models
    themselves are compared. `for_another`: the run was made for another one, in whose command no
    `--overwrite` reaches it.

    Raises:
        LimbeckError: also where they differ, with their names: the scores would be of others.
    """
    record = EarlierRun(folder, recipe).finished(overwrite=overwrite)
    changed = [] if record is None else _changed(recipe, folder, record, live_teacher)
    if changed:
        fix = f"remove {folder.path}" if for_another else "pass --overwrite"
        raise LimbeckError(
            f"out: {folder.path} has finished, with other {' and '.join(changed)} than lie there now",
            f"{fix} to train it again; or put back what it was made from, or choose another folder "
            "with --out",
        )
    return record


def _changed(
    recipe: Recipe, folder: RunFolder, record: Record, live_teacher: Teacher | None
) -> list[str]:
    """What is other than it was, by name; what is not there any more cannot be compared, and is said."""
    began, now = record.execution.files, checksums_of_inputs(recipe)
    if other := _differing(record.execution.read, plugins_read(recipe)):
        return other
    gone = [name for name in began if name not in now]
    if gone:
        logger.warning(
            "%s has finished, and %s is not there any more to compare with",
            folder.path,
            " and ".join(gone),
        )
    if not began and not record.execution.read:  # of an earlier version
        return []
    differing = [name for name in now if now[name] != began.get(name)]
    if not differing:
        return []
    try:
        now_there = prepare(recipe, live_teacher)
    except LimbeckError:
        # With nothing to hold it against, a record of an earlier version has to be believed.
        return [name for name in differing if name in began]
    unseen = [name for name in differing if name.startswith(_UNSEEN) and name in began]
    return _differing(record.execution.read, digests(now_there)) + unseen


def _differing(began: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [name for name in now if began.get(name, now[name]) != now[name]]
