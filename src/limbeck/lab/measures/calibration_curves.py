"""How sure models are and how right, as curves that can be kept. Part of `limbeck.lab.measures`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from limbeck.evaluation.calibration import BINS, calibration_error, reliability


@dataclass(frozen=True)
class CurvePoint:
    """The rows predicted with a probability in (low, high]; None where there are none."""

    low: float
    high: float
    rows: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True)
class ReliabilityCurve:
    """One model's reliability.

    Attributes:
        error: expected calibration error, 0 to 100 (Guo et al. 2017, Eq. 3).
        confidence: mean probability of the predictions, 0 to 1.
        accuracy: 0 to 1; above it, `confidence` is too high.
        points: of every bin of probabilities.
        rows: how many were predicted.
    """

    error: float
    confidence: float
    accuracy: float
    points: tuple[CurvePoint, ...]
    rows: int


def reliability_curve(
    confidence: np.ndarray, right: np.ndarray, *, bins: int = BINS
) -> ReliabilityCurve:
    """Calibration error and reliability of predictions.

    Args:
        confidence: the predictions' own probabilities (n,), 0 to 1.
        right: whether each is right (n,).
        bins: how many equally wide bins [0, 1] is cut into.

    Raises:
        ValueError: no predictions, or shapes that differ.
    """
    if not len(confidence) or confidence.shape != right.shape:
        raise ValueError(f"{confidence.shape} probabilities, {right.shape} predictions")
    hits = right.astype(float)
    found = reliability(confidence, hits, bins)
    points = tuple(CurvePoint(**one.model_dump()) for one in found)
    return ReliabilityCurve(
        100 * calibration_error(found),
        float(confidence.mean()),
        float(hits.mean()),
        points,
        len(confidence),
    )
