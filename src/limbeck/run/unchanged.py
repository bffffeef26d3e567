"""A run that goes on has the rows and teachers that it began with. Part of `limbeck.run`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from limbeck.cache import add_model, add_rows
from limbeck.errors import LimbeckError
from limbeck.run.assemble import Assembly
from limbeck.run.folder import RunFolder

_ROWS = "training rows"
_DEV = "dev rows"


def digests(assembly: Assembly) -> dict[str, str]:
    """What is read all through a run → what it was: rows as they are encoded, teachers' weights."""
    rows = {_ROWS: assembly.encoded["train"], _DEV: assembly.dev}
    found = {}
    for name, dataset in rows.items():
        digest = hashlib.blake2b(digest_size=8)
        add_rows(digest, dataset)
        found[name] = digest.hexdigest()
    for one in assembly.named:
        digest = hashlib.blake2b(digest_size=8)
        add_model(digest, one.teacher.model)
        found[one.setting] = digest.hexdigest()
    return found


def refuse_changed(folder: RunFolder, began: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise LimbeckError where checkpoints lie of a run that began with other rows or teachers.

    Half of a student would come from each, and the record would know of one.
    """
    changed = [name for name in now if began.get(name, now[name]) != now[name]]
    if changed and folder.begun:
        raise LimbeckError(
            f"out: {folder.path} holds a stopped run that began with other {' and '.join(changed)} "
            "than lie there now",
            "put back what it began with; or remove the folder, or choose another with --out, to "
            "begin anew",
        )
