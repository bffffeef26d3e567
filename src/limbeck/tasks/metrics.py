"""Metrics: GLUE's five metrics, F1 weighted by class and top-5 accuracy, on a scale of 0 to 100.

Read by `tasks` (a task names its metrics), so by evaluation, records and tables. A student that has
collapsed to one prediction is a result like any other: its correlation is 0, not NaN and not a warning.
"""

import math
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy import stats
from sklearn import metrics as sklearn_metrics

from limbeck.support.errors import LimbeckError, Problem, unknown


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
    if min(len(np.unique(one)) for one in (predicted, labels)) < 2:
        return 0.0  # scikit-learn's value, without its warning
    return 100.0 * float(sklearn_metrics.matthews_corrcoef(labels, predicted))


def pearson(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Pearson correlation of two float arrays [n], −100 to 100; 0 when either side is constant."""
    return _correlation(stats.pearsonr, predicted, labels)


def spearman(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Spearman rank correlation, ties sharing their mean rank; 0 when either side is constant."""
    return _correlation(stats.spearmanr, predicted, labels)


def _correlation(correlate: Callable[..., Any], predicted: np.ndarray, labels: np.ndarray) -> float:
    if len(labels) < 2 or np.ptp(predicted) == 0 or np.ptp(labels) == 0:
        return 0.0
    with warnings.catch_warnings():
        # An almost constant prediction is a bad student, which its score shows already.
        warnings.simplefilter("ignore", category=stats.NearConstantInputWarning)
        statistic = float(correlate(predicted, labels).statistic)
    return 100.0 * statistic if np.isfinite(statistic) else 0.0


def relative_error(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Root mean squared error in percent of the labels' standard deviation; of equal labels the error is 0 or 100."""
    error = float(np.sqrt(np.mean((predicted - labels) ** 2)))
    spread = float(np.std(labels))
    return 100.0 * error / spread if spread else 100.0 * (error > 0)


def quadratic_kappa(predicted: np.ndarray, labels: np.ndarray) -> float:
    """Cohen's kappa with quadratic weights (Cohen 1968) of ranks [n], −100 to 100; 0 when either side is constant."""
    every = np.arange(len(labels))[None]
    return float(quadratic_kappa_of_ranks(predicted, labels)(every)[0])


def mean_absolute_error(predicted: np.ndarray, labels: np.ndarray) -> float:
    """How many classes a prediction is away from the label, times 100, of ranks [n]."""
    return 100.0 * float(np.abs(predicted - labels).mean())


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
    "quadratic_kappa": quadratic_kappa,
    "mean_absolute_error": mean_absolute_error,
}

TEACHER_AGREEMENT, TEACHER_KL = "teacher_agreement", "teacher_kl"
"""Scores of a student compared with its teacher's distributions: the share of places where both find the same token the
likeliest, and the mean KL divergence from the teacher in hundredths of a nat."""

LOWER_IS_BETTER = frozenset({"mean_absolute_error", "perplexity", "relative_error", TEACHER_KL})
"""Metrics, of any kind, whose best value is the smallest. None is ever a task's primary score."""

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
# a list of numbers of units, with replacement: of rows, or of a task type's own units.
# Each function reads the predictions once and gives what scores samples.


SampledScore = Callable[[np.ndarray], np.ndarray]
"""Numbers of units (B, m) → a score, on a scale to 100, for each of the B samples."""


class SampledUnits(NamedTuple):
    """Kept predictions as units to resample.

    `name`: name of the units, in the plural. `kept`: predictions and labels by unit.
    """

    name: str
    kept: Mapping[str, Sequence[Any]]


def ratio_of_sums(
    top: Sequence[float] | np.ndarray, bottom: Sequence[float] | np.ndarray
) -> SampledScore:
    """The sum of a numerator over the sum of a denominator, each (n,) by unit; 0 where the latter is 0."""
    above, below = (np.asarray(part, dtype=np.float64) for part in (top, bottom))

    def score(units: np.ndarray) -> np.ndarray:
        return 100 * _over(above[units].sum(axis=-1), below[units].sum(axis=-1))

    return score


def correlation(given: Any, right: Any, *, ranks: bool) -> SampledScore:
    """Pearson's of numbers (n,), or of their ranks within the sample; 0 where a side is constant."""
    sides = [np.asarray(side, dtype=np.float64) for side in (given, right)]

    def score(units: np.ndarray) -> np.ndarray:
        if ranks:
            times = _times(units, len(sides[0]))
            numbers = [_ranks(one, times) for one in sides]
        else:
            times = np.ones(units.shape)
            numbers = [one[units] for one in sides]
        size = times.sum(axis=-1, keepdims=True)
        one, other = (side - (times * side).sum(axis=-1, keepdims=True) / size for side in numbers)
        spread = np.sqrt((times * one**2).sum(axis=-1) * (times * other**2).sum(axis=-1))
        return 100 * _over((times * one * other).sum(axis=-1), spread)

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


def quadratic_kappa_of_ranks(given: np.ndarray, right: np.ndarray) -> SampledScore:
    """1 − Σ (x − y)² / its expectation if the ranks x and y (n,) were independent; 0 where a side is constant."""
    x, y = (np.asarray(side, dtype=np.float64) for side in (given, right))

    def score(units: np.ndarray) -> np.ndarray:
        ours, theirs = x[units], y[units]
        one, other = ours.mean(axis=-1), theirs.mean(axis=-1)
        both = (ours * theirs).mean(axis=-1) - one * other
        # E(x − y)² of independent x and y is Var x + Var y + (E x − E y)².
        return 100 * _over(2 * both, ours.var(axis=-1) + theirs.var(axis=-1) + (one - other) ** 2)

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
    """Average precision of one class in samples, given the count of each row (B, n)."""
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


def _ranks(numbers: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The rank of each number (n,) in samples with these numbers of copies (B, n); equal ones share their mean rank.

    No sample is sorted.
    """
    order = np.argsort(numbers)
    before = np.pad(times[:, order].cumsum(axis=-1), ((0, 0), (1, 0)))
    less, not_greater = (np.searchsorted(numbers[order], numbers, end) for end in ("left", "right"))
    found: np.ndarray = (before[:, less] + before[:, not_greater] + 1) / 2
    return found


def _mean_of_present(each: np.ndarray, present: np.ndarray) -> np.ndarray:
    """The mean over the classes (B, C) that are there; 0 where none is."""
    return _over(np.where(present, each, 0.0).sum(axis=-1), present.sum(axis=-1))


def _over(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """A quotient, 0 where the denominator is 0."""
    return top / np.where(bottom > 0, bottom, 1) * (bottom > 0)


# How well scores rank a query's candidates: nDCG, MRR and recall at a depth.
#
# Read by task types that rank and by retrieval with embeddings. Gains are the grades themselves and
# discounts log₂(rank + 1), as trec_eval, BEIR and scikit-learn have them; a candidate is relevant if
# its grade is above 0. Candidates of equal scores have no order: every metric is the mean over
# all orders of them (McSherry and Najork 2008), so that a score does not depend on the order of rows,
# and a model that gives every candidate one score does not profit from files whose first candidate is
# the right one. trec_eval orders them by their ids instead.


Metric = Callable[[np.ndarray, np.ndarray, int, np.ndarray], float]
"""Of one query: grades in the order of falling scores with the ends of equal scores, the depth, all grades."""

Name = TypeVar("Name", bound=int | str)
"""Of queries and passages."""

_NAME = re.compile(r"([a-z]+)@([1-9][0-9]*)")


def _of_query(metric: Metric) -> Callable[..., float]:
    """Make a metric of one query read the scores and grades (n,) of its candidates.

    It is called with scores, of which the greatest comes first; grades, 0 for an irrelevant candidate; the depth k to
    look at; and perhaps the grades (m,) of all that is known to be relevant, candidates or not (`known`). Its value is
    NaN for a query without anything relevant.
    """

    def of_scores(
        scores: np.ndarray, grades: np.ndarray, k: int, known: np.ndarray | None = None
    ) -> float:
        values, judged = np.asarray(scores, np.float64), np.asarray(grades, np.float64)
        if not np.isfinite([values, judged]).all() or (judged < 0).any():
            raise LimbeckError(
                "ranking: a score is not finite, or a grade is not finite or below 0",
                "check the model's outputs; a grade is 0 for an irrelevant passage",
            )
        everything = judged if known is None else np.asarray(known, np.float64)
        if not (everything > 0).any():
            return float("nan")
        order = np.argsort(-values, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(values[order])) + 1, len(values))
        return metric(judged[order], ends, k, everything)

    return of_scores


def _blocks(ends: np.ndarray) -> Iterable[tuple[int, int]]:
    """Where each run of equal scores starts and ends."""
    return zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True)


def _discounts(k: int) -> np.ndarray:
    return 1 / np.log2(np.arange(k) + 2)


@_of_query
def ndcg(grades: np.ndarray, ends: np.ndarray, k: int, known: np.ndarray) -> float:
    """Normalised discounted cumulative gain of the first k (Järvelin and Kekäläinen 2002), 0 to 1."""
    discounts = _discounts(k)
    # Averaged over its orders, each place of a run has the run's mean grade.
    gained = sum(
        grades[start:end].mean() * discounts[start:end].sum()
        for start, end in _blocks(ends)
        if start < k
    )
    ideal = np.sort(known)[::-1][:k]
    return float(gained / (ideal * discounts[: len(ideal)]).sum())


@_of_query
def reciprocal_rank(grades: np.ndarray, ends: np.ndarray, k: int, known: np.ndarray) -> float:
    """1 over the rank of the first relevant candidate, 0 if none is among the first k."""
    for start, end in _blocks(ends):
        relevant, left = int((grades[start:end] > 0).sum()), end - start
        if not relevant:
            continue
        expected, none_yet = 0.0, 1.0
        # The first relevant one of the run is at each of its places with some probability.
        for place in range(start, min(end - relevant + 1, k)):
            here = none_yet * relevant / left
            expected += here / (place + 1)
            none_yet, left = none_yet - here, left - 1
        return expected
    return 0.0


@_of_query
def recall(grades: np.ndarray, ends: np.ndarray, k: int, known: np.ndarray) -> float:
    """The share of relevant candidates among the first k."""
    found = sum(
        (grades[start:end] > 0).mean() * (min(end, k) - start)
        for start, end in _blocks(ends)
        if start < k
    )
    return float(found / (known > 0).sum())


RANKING_METRICS: Mapping[str, Callable[..., float]] = {
    "ndcg": ndcg,
    "mrr": reciprocal_rank,
    "recall": recall,
}
"""By the part of a metric's name before "@", of one query."""


def ranking_metric(name: str) -> Callable[..., float]:
    """A metric of one query by its name, as `ndcg@10`: called with scores, grades and known grades.

    Raises:
        LimbeckError: no metric has that name.
    """
    if plain_metric(name) == "spearman":
        return lambda scores, grades, known=None: spearman(scores, grades) / 100
    found = _NAME.fullmatch(name)
    if found is None or found[1] not in RANKING_METRICS:
        examples = ", ".join(f"{known}@10" for known in RANKING_METRICS)
        raise LimbeckError(
            f"unknown ranking metric {name!r}", f"choices: {examples}, or @ another depth"
        )
    metric, depth = RANKING_METRICS[found[1]], int(found[2])

    def at_depth(scores: np.ndarray, grades: np.ndarray, known: np.ndarray | None = None) -> float:
        return metric(scores, grades, depth, known)

    return at_depth


def is_ranking_metric(name: str) -> bool:
    """Whether a metric of that name is one of ranks."""
    found = _NAME.fullmatch(name)
    return found is not None and found[1] in RANKING_METRICS


def by_query(queries: np.ndarray) -> list[np.ndarray]:
    """The rows of each query, ascending, the queries as they first occur; `queries` (n,) names each row's."""
    _, first, place = np.unique(queries, return_index=True, return_inverse=True)
    order = np.argsort(place, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(place[order])) + 1)
    return [parts[one] for one in np.argsort(first)]


def scores_by_query(
    names: Sequence[str], scores: np.ndarray, grades: np.ndarray, queries: np.ndarray
) -> dict[str, np.ndarray]:
    """Every metric of every query, (queries,) by name, 0 to 1; NaN for a query without anything relevant.

    Args:
        names: of metrics, as `ndcg@10`.
        scores: (n,) of all queries' candidates.
        grades: (n,) how relevant they are; NaN, of an unjudged candidate, counts as 0.
        queries: (n,) of which query each is.
    """
    judged = np.nan_to_num(np.asarray(grades, dtype=np.float64), nan=0.0)
    values = np.asarray(scores, dtype=np.float64)
    lists = by_query(np.asarray(queries))
    metrics = {name: ranking_metric(name) for name in names}
    return {
        name: np.array([metric(values[rows], judged[rows]) for rows in lists])
        for name, metric in metrics.items()
    }


def retrieval_scores(
    names: Sequence[str],
    ranked: Mapping[Name, Mapping[Name, float]],
    relevant: Mapping[Name, Mapping[Name, float]],
    tied: Mapping[Name, int] = MappingProxyType({}),
) -> dict[str, np.ndarray]:
    """Every metric of every query that was judged, (queries,) by name in the order of `relevant`, 0 to 1.

    Relevant passages count even if not retrieved; unjudged retrieved passages have grade 0. NaN for
    a query without anything relevant, 0 for one for which nothing was retrieved.

    Args:
        names: of metrics, as `ndcg@10`.
        ranked: by query the scores of retrieved passages, by passage.
        relevant: by query the grades of judged passages, by passage (qrels).
        tied: by query how many passages that were not judged have the score of the last one retrieved and were not
            retrieved: which of them all are is chance.
    """
    metrics = {name: ranking_metric(name) for name in names}
    found: dict[str, list[float]] = {name: [] for name in metrics}
    for query, grades in relevant.items():
        hits: Mapping[Name, float] = ranked.get(query, {})
        scores = np.array([*hits.values()], dtype=np.float64)
        judged = np.array([grades.get(passage, 0.0) for passage in hits], dtype=np.float64)
        if more := tied.get(query, 0):
            scores = np.append(scores, np.full(more, scores.min()))
            judged = np.append(judged, np.zeros(more))
        known = np.array([*grades.values()], dtype=np.float64)
        for name, metric in metrics.items():
            # An order of nothing finds nothing.
            nothing = 0.0 if (known > 0).any() else float("nan")
            found[name].append(metric(scores, judged, known) if len(hits) else nothing)
    return {name: np.array(values) for name, values in found.items()}


def mean_scores(found: Mapping[str, Iterable[float]], what: str) -> dict[str, float]:
    """Each metric's mean over the queries that have something relevant, 0 to 100.

    Raises:
        LimbeckError: none has; `what` names the rows.
    """
    means = {}
    for name, values in found.items():
        kept = np.asarray([value for value in values if not np.isnan(value)])
        if not len(kept):
            raise LimbeckError(
                Problem(
                    f"{what}: no query has a candidate with a grade above 0, so that nothing can be ranked",
                    "give grades: 1 for a passage that answers the query, more for a better one, otherwise 0",
                )
            )
        # Exact, so that the queries' order does not move the last digit.
        means[name] = 100.0 * math.fsum(kept) / len(kept)
    return means
