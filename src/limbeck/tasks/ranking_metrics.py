"""How well scores rank a query's candidates: nDCG, MRR and recall at a depth. Part of `limbeck.tasks`.

Read by task types that rank and by retrieval with embeddings. Gains are the grades themselves and discounts
log₂(rank + 1), as trec_eval, BEIR and scikit-learn have them; a candidate is relevant if its grade is above 0.
Candidates of equal scores stand in no order: every metric is the mean over all orders of them (McSherry and Najork
2008), so that a score does not depend on the order of rows, and a model that gives every candidate one score does not
profit from files whose first candidate is the right one. trec_eval orders them by their ids instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import numpy as np

from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks.metrics import plain_metric, spearman

Metric = Callable[[np.ndarray, np.ndarray, int, np.ndarray], float]
"""Of one query: grades in the order of falling scores with the ends of equal scores, the depth, all grades."""

Name = TypeVar("Name", bound=int | str)
"""Of queries and passages."""

_NAME = re.compile(r"([a-z]+)@([1-9][0-9]*)")


def ndcg(scores: np.ndarray, grades: np.ndarray, k: int, known: np.ndarray | None = None) -> float:
    """Normalised discounted cumulative gain of the first k (Järvelin and Kekäläinen 2002), 0 to 1.

    Args:
        scores: (n,) of one query's candidates; the greatest comes first.
        grades: (n,) how relevant each is, 0 for not.
        k: how deep to look.
        known: (m,) the grades of all that is known to be relevant, candidates or not; by default the candidates'.

    Returns:
        NaN for a query without anything relevant.
    """
    return _of_query(_ndcg, scores, grades, k, known)


def reciprocal_rank(
    scores: np.ndarray, grades: np.ndarray, k: int, known: np.ndarray | None = None
) -> float:
    """1 over the rank of the first relevant candidate, 0 if none is among the first k; arguments as of `ndcg`."""
    return _of_query(_reciprocal_rank, scores, grades, k, known)


def recall(
    scores: np.ndarray, grades: np.ndarray, k: int, known: np.ndarray | None = None
) -> float:
    """The share of all that is relevant which stands among the first k; arguments as of `ndcg`."""
    return _of_query(_recall, scores, grades, k, known)


RANKING_METRICS: Mapping[str, Callable[..., float]] = {
    "ndcg": ndcg,
    "mrr": reciprocal_rank,
    "recall": recall,
}
"""By the part of a metric's name before "@", of one query."""


def ranking_metric(name: str) -> Callable[..., float]:
    """A metric of one query by its name, as `ndcg@10`: called with scores, grades and known grades.

    Raises:
        LimbeckError: there is none of that name.
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
        grades: (n,) how relevant they are; NaN, of a candidate nobody judged, counts as 0.
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

    What is relevant counts also where it was not retrieved; what was retrieved and not judged has grade 0. NaN for
    a query without anything relevant, 0 for one for which nothing was retrieved.

    Args:
        names: of metrics, as `ndcg@10`.
        ranked: by query the scores of what was retrieved, by passage.
        relevant: by query the grades of what was judged, by passage (qrels).
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
                    "give grades: 1 for what answers the query, more for what answers it better, else 0",
                )
            )
        # Exact, so that the queries' order does not move the last digit.
        means[name] = 100.0 * math.fsum(kept) / len(kept)
    return means


# ---- one query ----


def _of_query(
    metric: Metric, scores: np.ndarray, grades: np.ndarray, k: int, known: np.ndarray | None
) -> float:
    values, judged = np.asarray(scores, np.float64), np.asarray(grades, np.float64)
    _check(values, judged, k)
    everything = judged if known is None else np.asarray(known, np.float64)
    if not (everything > 0).any():
        return float("nan")
    order = np.argsort(-values, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(values[order])) + 1, len(values))
    return metric(judged[order], ends, k, everything)


def _check(scores: np.ndarray, grades: np.ndarray, k: int) -> None:
    if scores.shape != grades.shape or scores.ndim != 1:
        raise LimbeckError(
            f"ranking: scores of shape {scores.shape} and grades of shape {grades.shape}",
            "give one score and one grade for each candidate of a query",
        )
    if not np.isfinite(scores).all() or not np.isfinite(grades).all() or (grades < 0).any():
        raise LimbeckError(
            "ranking: a score is not finite, or a grade is not finite or below 0",
            "check the model's outputs; a grade is 0 for what is not relevant",
        )
    if k < 1:
        raise LimbeckError(f"ranking: depth {k}", "look at 1 candidate or more")


def _blocks(ends: np.ndarray) -> Iterable[tuple[int, int]]:
    """Where each run of equal scores starts and ends."""
    return zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True)


def _discounts(k: int) -> np.ndarray:
    return 1 / np.log2(np.arange(k) + 2)


def _ndcg(grades: np.ndarray, ends: np.ndarray, k: int, known: np.ndarray) -> float:
    discounts = _discounts(k)
    # At each place of a run stands, in the mean over its orders, the run's mean grade.
    gained = sum(
        grades[start:end].mean() * discounts[start:end].sum()
        for start, end in _blocks(ends)
        if start < k
    )
    ideal = np.sort(known)[::-1][:k]
    return float(gained / (ideal * discounts[: len(ideal)]).sum())


def _reciprocal_rank(grades: np.ndarray, ends: np.ndarray, k: int, known: np.ndarray) -> float:
    for start, end in _blocks(ends):
        relevant, left = int((grades[start:end] > 0).sum()), end - start
        if not relevant:
            continue
        expected, none_yet = 0.0, 1.0
        # The first relevant one of the run stands at each of its places with some probability.
        for place in range(start, min(end - relevant + 1, k)):
            here = none_yet * relevant / left
            expected += here / (place + 1)
            none_yet, left = none_yet - here, left - 1
        return expected
    return 0.0


def _recall(grades: np.ndarray, ends: np.ndarray, k: int, known: np.ndarray) -> float:
    found = sum(
        (grades[start:end] > 0).mean() * (min(end, k) - start)
        for start, end in _blocks(ends)
        if start < k
    )
    return float(found / (known > 0).sum())
