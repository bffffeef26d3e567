"""What a score is: GLUE's five metrics, F1 weighted by class and top-5 accuracy, on a scale of 0 to 100.

Read by `tasks` (a task names its metrics), so by evaluation, records and tables. A student that has
collapsed to one prediction is a result like any other: its correlation is 0, not NaN and not a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from sklearn import metrics as sklearn_metrics

from limbeck.support.errors import LimbeckError, unknown


def accuracy(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Share of right predictions; `predicted` and `labels` are class ids of shape [n]."""
    return 100.0 * float(sklearn_metrics.accuracy_score(labels, predicted))


def f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """F1 of class 1 of two ("duplicate", "equivalent"); 0 when class 1 is never right."""
    return 100.0 * float(sklearn_metrics.f1_score(labels, predicted, zero_division=0))


def weighted_f1(predicted: np.ndarray, labels: np.ndarray) -> float:
    """The mean of every class's F1, each counted as often as the class occurs in `labels`.

    What Aguilar et al. (2020) print as F1: no other F1 fits their printed accuracies.
    """
    return 100.0 * float(
        sklearn_metrics.f1_score(labels, predicted, average="weighted", zero_division=0)
    )


def matthews(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Matthews correlation (CoLA), −100 to 100; 0 when either side is constant."""
    return 100.0 * float(sklearn_metrics.matthews_corrcoef(labels, predicted))


def pearson(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Pearson correlation of two float arrays [n], −100 to 100; 0 when either side is constant."""
    return _correlation(stats.pearsonr, predicted, labels)


def spearman(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Spearman rank correlation, ties sharing their mean rank; 0 when either side is constant."""
    return _correlation(stats.spearmanr, predicted, labels)


def _correlation(correlate: Callable, predicted: np.ndarray, labels: np.ndarray) -> float:
    if len(labels) < 2 or np.ptp(predicted) == 0 or np.ptp(labels) == 0:
        return 0.0
    with warnings.catch_warnings():
        # An almost constant prediction is a bad student, which its score says already.
        warnings.simplefilter("ignore", category=stats.NearConstantInputWarning)
        statistic = float(correlate(predicted, labels).statistic)
    return 100.0 * statistic if np.isfinite(statistic) else 0.0


def relative_error(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Root mean squared error in percent of the labels' standard deviation; of equal labels the error is 0 or 100."""
    error = float(np.sqrt(np.mean((predicted - labels) ** 2)))
    spread = float(np.std(labels))
    return 100.0 * error / spread if spread else 100.0 * (error > 0)


METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "matthews": matthews,
    "accuracy": accuracy,
    "f1": f1,
    "weighted_f1": weighted_f1,
    "pearson": pearson,
    "spearman": spearman,
    "agreement": accuracy,
    "rank_agreement": spearman,
    "relative_error": relative_error,
}


CORRELATIONS = ("pearson", "spearman")
"""Metrics of numbers."""

TEACHER_LABEL = "teacher_label"
"""The label column whose values are a teacher's own predictions. Scores of it are agreement with the teacher."""

TEACHER_EMBEDDING = "teacher_embedding"
"""The teacher's embedding of the first text of a scored pair."""

_PLAIN = {"agreement": "accuracy", "rank_agreement": "spearman", "overlap": "f1"}


def plain_metric(name: str) -> str:
    """Return the metric that an agreement with a teacher is computed by; any other metric is its own."""
    return _PLAIN.get(name, name)


def is_agreement(metric: str) -> bool:
    """Whether a metric compares predictions with a teacher's, not with labels."""
    return metric in _PLAIN


def as_agreement(scores: Mapping[str, float], metrics: Sequence[str]) -> dict[str, float]:
    """Scores against a teacher's predictions, under the names in `metrics` (the first is primary)."""
    found = {name: scores[plain_metric(name)] for name in metrics}
    return found | {"primary": found[metrics[0]]}


def top5(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Share of rows whose class is among the five likeliest, of predictions [n, classes].

    Of classes with equal predictions the one of the lower id counts as likelier.
    """
    likeliest = np.argsort(-predictions, axis=1, kind="stable")[:, :5]
    return 100.0 * float((likeliest == labels[:, None]).any(axis=1).mean())


RANKED_METRICS: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {"top5": top5}
"""Metrics that look at all of a row's predictions [n, classes], not at the class they come to."""


def mean_of(expression: str, scores: Mapping[str, float]) -> float:
    """The mean of the metrics joined by "+": `mean_of("accuracy+f1", {...})`.

    Raises LimbeckError naming a metric that `scores` lacks.
    """
    names = expression.split("+")
    missing = [name for name in names if name not in scores]
    if missing:
        raise LimbeckError([unknown("metric", name, sorted(scores)) for name in missing])
    return sum(scores[name] for name in names) / len(names)


# Metrics of many samples of the same predictions at once, as intervals over them need. A sample is
# a list of numbers of units, with replacement: of rows, or of what a task type has in their place.
# Each function reads the predictions once and gives what scores samples.


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
