"""What is said where a teacher has no outputs for any row. Part of `limbeck.labelling`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from limbeck.support.errors import LimbeckError, Problem

_SAID = 3
"""Of different reasons, the most frequent ones."""


def none_has_outputs(rows: str, reasons: Iterable[str]) -> LimbeckError:
    """The error that not one of some rows has outputs.

    Args:
        rows: which they are, in words.
        reasons: why, one for each of them.
    """
    return LimbeckError(
        [
            Problem(
                f"not one of {rows} has outputs: {reason} ({count:,} rows)",
                "look at what the teacher is asked; --missing-rows drop leaves out some rows, never all of them",
            )
            for reason, count in Counter(reasons).most_common(_SAID)
        ]
    )
