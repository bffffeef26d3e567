"""What a run leaves when it fails. Part of `limbeck.run`."""

from __future__ import annotations

from contextlib import suppress

from limbeck.records import Record
from limbeck.run.run_folder import RunFolder
from limbeck.support.errors import LimbeckError
from limbeck.support.files import full_disk, is_full
from limbeck.support.machine import is_first


def fail(record: Record, folder: RunFolder, error: Exception) -> None:
    """Keep the reason in the record; on a full disk, first make room for it."""
    full = is_full(error)
    raw = full and not isinstance(error, LimbeckError)
    record.fail(str(full_disk(folder.path, error)) if raw else error)
    if not is_first():
        return
    if not full:
        record.save(folder.path)
        return
    folder.remove_unfinished()
    with suppress(LimbeckError):  # not even that: what is wrong is said by who calls
        record.save(folder.path)
