"""Outputs that a run is given in a teacher's place, as logits of the data's classes.

Part of `limbeck.teachers.outputs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from limbeck.support.errors import LimbeckError
from limbeck.teachers.outputs.stored_layers import StoredLayers
from limbeck.teachers.outputs.stored_tokens import StoredTokens

# As `limbeck.functional` floors what stands before a logarithm.
_SMALLEST_PROBABILITY = 1e-12
UNKNOWN_ROWS_FIX = "label these rows too (`limbeck label`), or leave them out: missing_outputs=drop"


@dataclass(frozen=True)
class GivenOutputs:
    """One teacher's outputs by row ids.

    Attributes:
        place: where they were read: a folder, a file, a URL.
        what: what is stored: `logits`, `probabilities`, `votes`, `score`, `margin`, `embedding`.
        classes: of the data, in the data's order; () of a number.
        ids: the rows that it knows, ascending, int64 (n,).
        read: stored values of some of these rows (n, C), in the order of the data's classes.
        about: what a record keeps of it: fingerprints, the teacher's name.
        layers: what is stored of the teacher's layers; None where they are not known at all.
        tokens: of a text-to-text teacher, what is stored of its logits over a vocabulary; nothing is to `read` then.
        lists: of each of `ids` (n,) the list in which its score is known, but for a number that all of the list have
            (`limbeck.data.margins`); None where scores are known by themselves.
        embedding: numbers of an embedding, where outputs are embeddings of each text by itself; else 0.
    """

    place: str
    what: str
    classes: tuple[str, ...]
    ids: np.ndarray
    read: Callable[[np.ndarray], np.ndarray]
    about: dict[str, Any]
    layers: StoredLayers | None = None
    tokens: StoredTokens | None = None
    several: bool = False
    lists: np.ndarray | None = None
    embedding: int = 0

    def known_together(self, ids: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Which rows it knows beside the others of their group, boolean (n,), by the number of each one's group (n,).

        Where scores are known within lists alone, those of the list that has most of a group.
        """
        known = self.known(ids)
        if self.lists is None or not known.any():
            return known
        lists = self.lists[np.searchsorted(self.ids, ids[known])]
        both, counts = np.unique(np.stack([groups[known], lists]), axis=1, return_counts=True)
        # By group, the greatest count first.
        order = np.lexsort([-counts, both[0]])
        numbers, firsts = np.unique(both[0][order], return_index=True)
        best = both[1][order][firsts]
        known[known] = lists == best[np.searchsorted(numbers, groups[known])]
        return known

    def known(self, ids: np.ndarray) -> np.ndarray:
        """Which rows it knows, boolean (n,)."""
        return np.isin(ids, self.ids)

    def logits(self, ids: np.ndarray) -> np.ndarray:
        """Logits of some rows, float32 (n, C), or numbers (n, 1) (`as_logits`).

        Raises:
            LimbeckError: rows that it does not know, with their number.
        """
        self.check_known(ids)
        return as_logits(self.what, self.read(ids), several=self.several)

    def check_known(self, ids: np.ndarray) -> None:
        """Raise LimbeckError for rows that it does not know, with their number."""
        absent = len(np.unique(ids[~self.known(ids)]))
        if absent:
            raise LimbeckError(
                f"outputs: {self.place} knows nothing of {absent} of {len(np.unique(ids))} rows",
                UNKNOWN_ROWS_FIX,
            )


def as_logits(what: str, values: np.ndarray, *, several: bool = False) -> np.ndarray:
    """Stored values (n, C) as logits whose softmax they are, float32; whose sigmoid, each by itself, with `several`.

    Probabilities p become ln max(p, 1e-12): their softmax at any temperature is that of the logits they
    were made from. Votes v of n become ln((v + 1/C) / (n + 1)), smoothed by one vote that all classes share, as few
    votes do not tell that a class is impossible; by one for each class few votes about many would say nothing.
    """
    if what in ("probabilities", "votes"):
        values = values.astype(np.float64)
    if what == "probabilities" and several:
        sure = np.clip(values, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
        values = np.log(sure) - np.log1p(-sure)
    elif what == "probabilities":
        values = np.log(np.maximum(values, _SMALLEST_PROBABILITY))
    elif what == "votes":
        smoothed = values + 1.0 / values.shape[-1]
        values = np.log(smoothed / smoothed.sum(axis=-1, keepdims=True))
    return values.astype(np.float32, copy=False)
