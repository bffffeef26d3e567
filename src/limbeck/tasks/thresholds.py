"""From which probability on a row is of a class, where it may be of several. Part of `limbeck.tasks`.

A threshold is half-way between two probabilities that were seen, so that a runtime whose numbers differ in the
last digits decides alike.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from limbeck.support.errors import LimbeckError

USUAL = 0.5
THRESHOLDS = "label_thresholds"
"""Where a shipped model's configuration holds them, in the order of its classes."""

# A float32 model's probabilities of one text in two batches differ by less.
_ROUNDING = 1e-6

ThresholdRule = Literal["one", "by_class"]
"""Tuned: one for all classes, by micro F1, or one for each, by its own F1."""
Thresholds = ThresholdRule | float | tuple[float, ...]
"""How they are found, or what they are: one for all classes, or of each in id order."""


def decided(given: Thresholds, probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The thresholds (C,), given or tuned on these rows: probabilities (n, C) and labels of 0 and 1 (n, C)."""
    count = probabilities.shape[1]
    if given == "one":
        return np.full(count, best_threshold(probabilities.reshape(-1), labels.reshape(-1)))
    if given == "by_class":
        pairs = zip(probabilities.T, labels.T, strict=True)
        return np.array([best_threshold(*pair) for pair in pairs])
    return np.broadcast_to(np.asarray(given, dtype=np.float64), (count,)).copy()


def cross_decided(
    given: Thresholds, probabilities: np.ndarray, labels: np.ndarray, parts: int = 5
) -> np.ndarray:
    """By row the thresholds (n, C) for a score on the rows that tune them: each part's are tuned on the other parts.

    Given thresholds hold for all rows. The parts hold each class as evenly as its rows allow: rows are dealt out in
    the order of their rarest class.
    """
    rows = len(labels)
    if not isinstance(given, str) or rows < 2:
        return np.broadcast_to(decided(given, probabilities, labels), probabilities.shape)
    has = labels == 1
    rarest = np.where(has, has.sum(axis=0), rows + 1).argmin(axis=1)
    order = np.argsort(np.where(has.any(axis=1), rarest, labels.shape[1]), kind="stable")
    part = np.empty(rows, dtype=np.int64)
    part[order] = np.arange(rows) % min(parts, rows)
    found = np.empty(probabilities.shape)
    for one in range(min(parts, rows)):
        others = part != one
        found[~others] = decided(given, probabilities[others], labels[others])
    return found


def thresholds_of(config: Any) -> tuple[float, ...] | None:
    """What a model's configuration says, in the order of its classes; None where it says nothing.

    Raises:
        LimbeckError: other than a probability for each class.
    """
    found = getattr(config, THRESHOLDS, None)
    if found is None:
        return None
    numbers = (
        [one for one in found if type(one) in (int, float) and 0 <= one <= 1]
        if isinstance(found, list)
        else []
    )
    if len(numbers) != config.num_labels or len(numbers) != len(found):
        raise LimbeckError(
            f"{THRESHOLDS} in config.json is {found!r:.80}, and there are {config.num_labels} classes",
            "give each class a number from 0 to 1, in the order of id2label, or take the key out",
        )
    return tuple(map(float, numbers))


def best_threshold(probabilities: np.ndarray, right: np.ndarray) -> float:
    """From which probability on F1 is largest: probabilities (m,), and which are right, 0 or 1 (m,).

    Of equally good ones the nearest to ½, which is also the answer where nothing is right.
    """
    order = np.argsort(-probabilities, kind="stable")
    ranked, hits = probabilities[order], np.cumsum(right[order])
    wanted = hits[-1] if len(hits) else 0
    if not wanted:
        return USUAL
    # What has one probability but for rounding is taken together: no threshold stands between.
    ends = np.flatnonzero(np.append(np.diff(ranked) < -_ROUNDING, True))
    scores = 2 * hits[ends] / (ends + 1 + wanted)
    below = np.append(ranked[ends[:-1] + 1], 0.0)
    between = (ranked[ends] + below) / 2
    best = between[np.isclose(scores, scores.max(), rtol=1e-12, atol=0)]
    return float(best[np.abs(best - USUAL).argmin()])
