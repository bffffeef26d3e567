"""Whether a classifier is as sure as it is right: calibration error, Brier score, likelihood.

Computed from the predictions of finished models. A teacher's soft
labels are its probabilities, so one that is too sure teaches little more than the labels do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

from limbeck.evaluation.class_predictions import class_outputs
from limbeck.records.facts import ReliabilityPoint

_MOST_NUMBERS = 4_000_000
BINS = 15
"""Bins of confidence, as Guo et al. (2017) have them."""


@dataclass(frozen=True)
class Calibration:
    """How well a model's probabilities fit what is right."""

    error: float
    """Expected calibration error, 0 to 1 (Guo et al. 2017, Eq. 3)."""
    brier: float
    """Mean squared distance of the probabilities from the label's one-hot row, 0 to 2 (Brier 1950)."""
    likelihood: float
    """Mean negative log-likelihood of the labels, nats."""
    confidence: float
    """Mean probability of the predictions, 0 to 1."""
    accuracy: float
    """0 to 1. Above it, `confidence` is too high."""
    bins: list[ReliabilityPoint]


def calibration_of(logits: np.ndarray, labels: np.ndarray, *, bins: int = BINS) -> Calibration:
    """Calibration of a classifier's logits (n, C), or log-probabilities, against class ids (n,).

    The expected calibration error cuts [0, 1] into equally wide bins of confidence, the largest
    probability of an example, and is Σ |B|/n · |accuracy(B) − confidence(B)|.

    Raises ValueError for shapes that do not fit, and for no examples.
    """
    logits, labels = class_outputs(logits, labels)
    log_probabilities = log_softmax(logits, axis=1)
    probabilities = np.exp(log_probabilities)
    confidence = probabilities.max(axis=1)
    right = (logits.argmax(axis=1) == labels).astype(float)
    found = reliability(confidence, right, bins)
    one_hot = np.eye(logits.shape[1])[labels]
    return Calibration(
        error=calibration_error(found),
        brier=float(np.square(probabilities - one_hot).sum(axis=1).mean()),
        likelihood=float(-log_probabilities[np.arange(len(labels)), labels].mean()),
        confidence=float(confidence.mean()),
        accuracy=float(right.mean()),
        bins=found,
    )


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
    # Closed above: an example predicted with probability 1 belongs to the last bin.
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
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


def unbiased_error(confidence: np.ndarray, bins: int = BINS, seed: int = 0) -> float:
    """The expected calibration error, 0 to 1, that a perfectly calibrated model has on average by chance.

    It predicts with these probabilities (n,), and each prediction is right with its own: few rows leave accuracy and
    confidence apart in every bin. The mean of up to 200 samples.
    """
    rng = np.random.default_rng(seed)
    samples = max(20, min(200, _MOST_NUMBERS // len(confidence)))
    return float(
        np.mean(
            [
                calibration_error(
                    reliability(confidence, rng.random(len(confidence)) < confidence, bins)
                )
                for _ in range(samples)
            ]
        )
    )


def calibration_error(bins: Sequence[ReliabilityPoint]) -> float:
    """Expected calibration error, 0 to 1: Σ |B|/n · |accuracy(B) − confidence(B)| (Guo et al. 2017, Eq. 3)."""
    gaps = sum(one.rows * abs((one.accuracy or 0.0) - (one.confidence or 0.0)) for one in bins)
    return gaps / sum(one.rows for one in bins)
