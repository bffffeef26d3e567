"""Whether a classifier is as sure as it is right: reliability and expected calibration error.

Computed from the predictions of finished models. A teacher's soft
labels are its probabilities, so one that is too sure teaches little more than the labels do.
"""

from collections.abc import Sequence

import numpy as np

from limbeck.records.facts import ReliabilityPoint

_MOST_NUMBERS = 4_000_000
BINS = 15
"""Bins of confidence, as Guo et al. (2017) have them."""


def reliability(
    confidence: np.ndarray, right: np.ndarray, bins: int = BINS
) -> list[ReliabilityPoint]:
    """The points of a reliability curve (Naeini et al. 2015; Guo et al. 2017, §2).

    Args:
        confidence: the predictions' own probabilities (n,), 0 to 1.
        right: whether each is right (n,).
        bins: how many equally wide bins [0, 1] is cut into; each is closed above.
    """
    edges = np.linspace(0, 1, bins + 1)
    place = _bin_of(confidence, edges)
    found = []
    for number in range(bins):
        inside = place == number
        point = ReliabilityPoint(
            low=float(edges[number]), high=float(edges[number + 1]), rows=int(inside.sum())
        )
        if point.rows:
            point.confidence = float(confidence[inside].mean())
            point.accuracy = float(right[inside].mean())
        found.append(point)
    return found


def _bin_of(confidence: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Each prediction's bin, 0 to bins − 1: closed above, so that a probability of 1 belongs to the last."""
    return np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, len(edges) - 2)


def unbiased_error(confidence: np.ndarray, bins: int = BINS, seed: int = 0) -> float:
    """The expected calibration error, 0 to 1, that a perfectly calibrated model has on average by chance.

    It predicts with these probabilities (n,), and each prediction is right with its own: few rows leave accuracy and
    confidence apart in every bin. The mean of up to 200 samples.
    """
    rng = np.random.default_rng(seed)
    samples = max(20, min(200, _MOST_NUMBERS // len(confidence)))
    place = _bin_of(confidence, np.linspace(0, 1, bins + 1))
    rights = (rng.random(len(confidence)) < confidence for _ in range(samples))
    # For a bin |B| · |accuracy − confidence| is the distance between the sums of both.
    gaps = [np.abs(np.bincount(place, right - confidence)).sum() for right in rights]
    return float(np.mean(gaps)) / len(confidence)


def calibration_error(bins: Sequence[ReliabilityPoint]) -> float:
    """Expected calibration error, 0 to 1: Σ |B|/n · |accuracy(B) − confidence(B)| (Guo et al. 2017, Eq. 3)."""
    gaps = sum(one.rows * abs((one.accuracy or 0.0) - (one.confidence or 0.0)) for one in bins)
    return gaps / sum(one.rows for one in bins)
