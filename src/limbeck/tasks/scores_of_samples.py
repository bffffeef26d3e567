"""Metrics of many samples of the same predictions at once, as intervals over them need. Part of `limbeck.tasks`.

A sample is a list of numbers of units, with replacement: of rows, or of what a task type has in their place. Each
function reads the predictions once and gives what scores samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

SampledScore = Callable[[np.ndarray], np.ndarray]
"""Numbers of units (B, m) → a score, on a scale to 100, for each of the B samples."""


class SampledUnits(NamedTuple):
    """Kept predictions as what is sampled again.

    `name`: what a unit is, in the plural. `kept`: predictions and labels by unit.
    """

    name: str
    kept: Mapping[str, Sequence[Any]]


def ratio_of_sums(top: np.ndarray, bottom: np.ndarray) -> SampledScore:
    """The sum of a numerator over that of a denominator, each (n,) by unit; 0 where the latter is 0."""
    above, below = (np.asarray(part, dtype=np.float64) for part in (top, bottom))

    def score(units: np.ndarray) -> np.ndarray:
        return 100 * _over(above[units].sum(axis=-1), below[units].sum(axis=-1))

    return score


def correlation(given: Sequence[float], right: Sequence[float], *, ranks: bool) -> SampledScore:
    """Pearson's of numbers (n,), or of their ranks within the sample; 0 where a side is constant."""
    x, y = (np.asarray(side, dtype=np.float64) for side in (given, right))

    def score(units: np.ndarray) -> np.ndarray:
        sides = [x[units], y[units]]
        if ranks:
            sides = [stats.rankdata(side, axis=-1) for side in sides]
        one, other = (side - side.mean(axis=-1, keepdims=True) for side in sides)
        spread = np.sqrt((one**2).sum(axis=-1) * (other**2).sum(axis=-1))
        return 100 * _over((one * other).sum(axis=-1), spread)

    return score


def matthews_of_classes(given: np.ndarray, right: np.ndarray) -> SampledScore:
    """Matthews' of class ids (n,), of any number of classes (Gorodkin 2004); 0 where a side is constant."""
    ids = np.unique(np.concatenate([given, right]))
    chosen, meant = (np.asarray(side)[:, None] == ids for side in (given, right))
    hits = (np.asarray(given) == np.asarray(right)).astype(np.float64)

    def score(units: np.ndarray) -> np.ndarray:
        times = _times(units, len(hits))
        ours, theirs, size = times @ chosen, times @ meant, times.sum(axis=-1)
        spread = (size**2 - (ours**2).sum(axis=-1)) * (size**2 - (theirs**2).sum(axis=-1))
        return 100 * _over((times @ hits) * size - (ours * theirs).sum(axis=-1), np.sqrt(spread))

    return score


def mean_f1(given: np.ndarray, right: np.ndarray) -> SampledScore:
    """The mean F1 of the classes that have rows in the sample, of predictions of 0 and 1 (n, C)."""
    chosen, meant = (np.asarray(side, dtype=np.float64) for side in (given, right))

    def score(units: np.ndarray) -> np.ndarray:
        times = _times(units, len(meant))
        there = times @ meant
        each = _over(2 * (times @ (chosen * meant)), times @ chosen + there)
        return 100 * _mean_of_present(each, there > 0)

    return score


def mean_average_precision(probabilities: np.ndarray, right: np.ndarray) -> SampledScore:
    """The mean average precision of the classes that have rows in the sample, of probabilities and labels (n, C).

    Σ (R_k − R_{k−1}) P_k over the thresholds k, as scikit-learn has it: equal probabilities are one threshold.
    """
    likely, meant = (np.asarray(side, dtype=np.float64) for side in (probabilities, right))

    def score(units: np.ndarray) -> np.ndarray:
        times = _times(units, len(meant))
        columns = zip(likely.T, meant.T, strict=True)
        each = np.stack([_average_precision(times, *column) for column in columns], axis=-1)
        return 100 * _mean_of_present(each, times @ meant > 0)

    return score


def _average_precision(times: np.ndarray, likely: np.ndarray, meant: np.ndarray) -> np.ndarray:
    """Of one class in samples that hold each row so many times (B, n)."""
    order = np.argsort(-likely, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(likely[order])), len(order) - 1)
    ranked = times[:, order]
    seen = ranked.cumsum(axis=-1)[:, ends]
    hits = (ranked * meant[order]).cumsum(axis=-1)[:, ends]
    gained = np.diff(hits, axis=-1, prepend=0.0)
    return _over((gained * _over(hits, seen)).sum(axis=-1), hits[:, -1])


def _times(units: np.ndarray, count: int) -> np.ndarray:
    """How often each of `count` units is in each sample, (B, count)."""
    places = units + count * np.arange(len(units))[:, None]
    times = np.bincount(places.ravel(), minlength=count * len(units))
    return times.reshape(len(units), count).astype(np.float64)


def _mean_of_present(each: np.ndarray, present: np.ndarray) -> np.ndarray:
    """The mean over the classes (B, C) that are there; 0 where none is."""
    return _over(np.where(present, each, 0.0).sum(axis=-1), present.sum(axis=-1))


def _over(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """A quotient, 0 where what is below is 0."""
    return top / np.where(bottom > 0, bottom, 1) * (bottom > 0)
