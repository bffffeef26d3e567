"""What a run's record names and is gone may be named otherwise. Part of `limbeck.lab.analysis`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from limbeck.support.errors import LimbeckError


@contextmanager
def or_name(what: str, *, given: str | None) -> Iterator[None]:
    """Add to a problem of what the run's record names that another may be named; not of what was given."""
    try:
        yield
    except LimbeckError as error:
        if given is not None:
            raise
        raise LimbeckError(
            [replace(one, fix=f"{one.fix}; or name {what}") for one in error.problems]
        ) from None
