"""A task's primary score on rows sampled with replacement, and the interval that it spans.

Part of `limbeck.evaluation`. What is sampled again is kept predictions, so that no model runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from scipy import stats

from limbeck.evaluation.class_predictions import Predictions
from limbeck.tasks import Task

SampledScore = Callable[[np.ndarray], np.ndarray]
"""Numbers of rows (B, n) → a score 0 to 100 for each of the B samples."""

LEVEL = 0.95
SAMPLES = 1000
# Numbers gathered at once.
_BATCH_NUMBERS = 2_000_000


def bootstrap(
    statistic: Callable[[np.ndarray], np.ndarray], rows: int, *, seed: int = 0
) -> tuple[float, float] | None:
    """Percentile interval of a statistic over `rows` rows; None where it is not defined in every sample.

    Args:
        statistic: numbers of rows (B, n) → a value for each of the B samples.
        rows: how many rows there are.
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


def primary_of_samples(task: Task, predictions: Predictions) -> SampledScore | None:
    """The primary score of samples of rows: the mean of its metrics; None where one cannot be sampled again."""
    parts = [_metric(task, name, predictions) for name in task.primary.split("+")]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return lambda rows: np.mean([part(rows) for part in known], axis=0)


def _metric(task: Task, name: str, predictions: Predictions) -> SampledScore | None:
    given, right = predictions["prediction"], predictions["label"]
    ratio = task.kind.row_parts(task, name, given, right)
    if ratio is not None:
        top, bottom = (np.asarray(part, dtype=np.float64) for part in ratio)

        def of_sums(rows: np.ndarray) -> np.ndarray:
            below = bottom[rows].sum(axis=-1)
            return 100 * top[rows].sum(axis=-1) / np.where(below > 0, below, 1)

        return of_sums
    # Of two classes, Matthews' is the correlation of their ids.
    numbers = task.regression or (name == "matthews" and len(task.labels) == 2)
    if name not in ("matthews", "pearson", "spearman") or not numbers or isinstance(given[0], str):
        return None
    x, y = np.asarray(given, dtype=np.float64), np.asarray(right, dtype=np.float64)

    def of_numbers(rows: np.ndarray) -> np.ndarray:
        pair = x[rows], y[rows]
        if name == "spearman":
            pair = stats.rankdata(pair[0], axis=-1), stats.rankdata(pair[1], axis=-1)
        return 100 * _correlation(*pair)

    return of_numbers


def _correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pearson's along the last axis; 0 where either side is constant, as the metric has it."""
    x = x - x.mean(axis=-1, keepdims=True)
    y = y - y.mean(axis=-1, keepdims=True)
    spread = np.sqrt((x**2).sum(axis=-1) * (y**2).sum(axis=-1))
    return (x * y).sum(axis=-1) / np.where(spread > 0, spread, 1)
