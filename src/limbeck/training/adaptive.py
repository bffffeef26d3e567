"""Rows held out of training to see progress on, where whom to sample is learned. Part of `limbeck.training`."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch.utils.data import Subset

from limbeck.data.row_facts import facts_of
from limbeck.support.errors import LimbeckError
from limbeck.tasks.abstract_type import labelled_rows

HELD_OUT = 128
"""Training rows held out where nobody says how many."""


def hold_out(rows: Any, count: int | None, seed: int) -> tuple[Any, Any]:
    """Rows to see progress on, sampled from the labelled training rows, and those that are left to train on.

    Raises:
        LimbeckError: there are no more rows than are to be held out.
    """
    count, known = count or HELD_OUT, 0 if rows is None else len(rows)
    labelled = _labelled(rows, known)
    if count >= len(labelled):
        raise LimbeckError(
            f"team.holdout: {count} of {len(labelled)} training rows",
            "hold out fewer, train on more, or pass holdout=: rows that are not trained on",
        )
    order = labelled[np.random.default_rng([seed, count]).permutation(len(labelled))]
    held = np.sort(order[:count])
    places = held, np.setdiff1d(np.arange(known), held)
    take = getattr(rows, "select", None) or (lambda chosen: Subset(rows, chosen.tolist()))
    aside, left = (take(chosen) for chosen in places)
    return aside, left


def _labelled(rows: Any, known: int) -> np.ndarray:
    """Places of the rows that progress can be seen on: of a table those with a label for the whole example."""
    labels = facts_of(rows).labels
    return np.arange(known) if labels is None else np.flatnonzero(labelled_rows(labels))
