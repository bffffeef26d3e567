"""A task's primary score on samples with replacement, and the interval that it spans.

Part of `limbeck.evaluation`. What is sampled again is kept predictions, so that no model runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from limbeck.evaluation.class_predictions import Predictions
from limbeck.tasks import Task
from limbeck.tasks.metrics import SampledScore, plain_metric

LEVEL = 0.95
SAMPLES = 1000
# Numbers gathered at once.
_BATCH_NUMBERS = 2_000_000


def bootstrap(
    statistic: Callable[[np.ndarray], np.ndarray], rows: int, *, seed: int = 0
) -> tuple[float, float] | None:
    """Percentile interval of a statistic over rows, or other units; None where it is not defined in every sample.

    Args:
        statistic: numbers of rows (B, n) → a value for each of the B samples.
        rows: how many there are.
        seed: that samples them.
    """

    def along(numbers: np.ndarray, axis: int) -> np.ndarray:
        return statistic(np.moveaxis(np.asarray(numbers, dtype=np.int64), axis, -1))

    with warnings.catch_warnings():
        # A statistic that some sample leaves undefined, or that is the same in all of them.
        warnings.simplefilter("ignore", category=stats.DegenerateDataWarning)
        found = stats.bootstrap(
            (np.arange(rows),),
            along,
            n_resamples=SAMPLES,
            batch=max(1, _BATCH_NUMBERS // rows),
            vectorized=True,
            confidence_level=LEVEL,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
    if not np.isfinite([found.low, found.high]).all():
        return None
    return float(found.low), float(found.high)


@dataclass(frozen=True)
class SampledPrimary:
    """A model's primary score, to be computed of samples of its predictions.

    Attributes:
        score: of numbers of units (B, m).
        count: how many units there are.
        unit: what they are, in the plural: rows, pairs, queries.
    """

    score: SampledScore
    count: int
    unit: str


def primary_of_samples(task: Task, predictions: Predictions) -> SampledPrimary | None:
    """The primary score of samples of units: the mean of its metrics; None where one cannot be sampled again."""
    units = task.kind.sampled_units(task, predictions)
    if units is None:
        return None
    names = task.primary.split("+")
    parts = [task.kind.sampled_score(task, plain_metric(name), units.kept) for name in names]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None

    def score(chosen: np.ndarray) -> np.ndarray:
        return np.mean([part(chosen) for part in known], axis=0)

    return SampledPrimary(score, len(units.kept["label"]), units.name)
