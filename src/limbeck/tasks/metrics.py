"""What a score is: GLUE's five metrics, F1 weighted by class and top-5 accuracy, on a scale of 0 to 100.

Read by `tasks` (a task names its metrics), so by evaluation, records and tables. A student that has
collapsed to one prediction is a result like any other: its correlation is 0, not NaN and not a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence

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
