"""Retrieval scores of embeddings: queries, a corpus, and its relevant passages.

A split holds each text once. A query's row names the rows that were judged for it, and their grades; a passage's row
names none. Search is exact.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset, List, Value
from torch import Tensor

from limbeck.embedding import embedder, folder
from limbeck.support.errors import LimbeckError
from limbeck.tasks.metrics import is_ranking_metric, mean_scores, retrieval_scores
from limbeck.tasks.rules import Results, TaskLike

TRANSLATED = ("source", "translation")
"""The two columns of texts that are translations of each other."""
TRANSLATION_METRICS = ("translation_accuracy", "to_translation", "to_source")
RETRIEVAL_METRICS = ("ndcg@10", "mrr@10", "recall@10", "recall@100")
JUDGED, GRADES = "judged", "grades"
"""Columns of a split: of a query the numbers (`index`) of the passages that were judged, and their grades."""
RETRIEVAL_FEATURES = {JUDGED: List(Value("int64")), GRADES: List(Value("float32"))}
_DEPTH = 100
_AT_ONCE = 1024
_SHARE = 4


def retrieves(task: TaskLike) -> bool:
    """Whether a task is scored by retrieval."""
    return is_ranking_metric(task.primary)


def retrieval_results(
    task: TaskLike, vectors: np.ndarray, rows: Dataset, similarity: str = folder.COSINE
) -> Results:
    """Means over the queries of every metric, and by query its primary one.

    Args:
        task: whose metrics are wanted.
        vectors: (n, d) embeddings of the rows.
        rows: with the columns `JUDGED` and `GRADES`.
        similarity: how embeddings are compared, cosine or dot.

    Raises:
        LimbeckError: rows without them, or nothing relevant among them.
    """
    if JUDGED not in rows.column_names:
        raise LimbeckError(
            f"task {task.name!r}: rows that are searched have to be queries and passages",
            "give a folder in BEIR's layout (dev: DIR)",
        )
    judged, numbers = rows[JUDGED][:], rows["index"][:]
    asked = np.array([bool(places) for places in judged])
    searched = embedder.WAYS[similarity].searched(
        torch.from_numpy(np.asarray(vectors, dtype=np.float32))
    )
    passages = [number for number, query in zip(numbers, asked, strict=True) if not query]
    queries = [number for number, query in zip(numbers, asked, strict=True) if query]
    relevant = {
        number: dict(zip(places, grades, strict=True))
        for number, places, grades in zip(numbers, judged, rows[GRADES][:], strict=True)
        if places
    }
    ranked, tied = _ranked(searched[asked], searched[~asked], queries, passages, relevant)
    by_query = retrieval_scores(task.metrics, ranked, relevant, tied)
    means = mean_scores(by_query, f"task {task.name!r}")
    own = by_query[task.primary]
    # Of each query its score, of 1 that can be had.
    kept: dict[str, list[Any]] = {
        "index": [number for number, score in zip(queries, own, strict=True) if score == score],
        "prediction": [float(score) for score in own if score == score],
    }
    kept["label"] = [1.0] * len(kept["index"])
    return Results(means | {"primary": means[task.primary]}, kept)


def translation_results(
    vectors: np.ndarray, rows: Dataset, similarity: str = folder.COSINE
) -> Results:
    """How often the nearest text on the other side is a text's own translation, in percent, each way and in the mean.

    As sentence-transformers' `TranslationEvaluator` counts: the first of several that are equally near.

    Args:
        vectors: (n, 2, d) embeddings of sources and translations.
        rows: of the split.
        similarity: how embeddings are compared, cosine or dot.
    """
    sides = torch.from_numpy(np.asarray(vectors, dtype=np.float32))
    sources, translations = embedder.WAYS[similarity].searched(sides).unbind(1)
    hits = []
    for asked, there in ((sources, translations), (translations, sources)):
        nearest = [(some @ there.T).argmax(dim=1) for some in asked.split(_AT_ONCE)]
        hits.append((torch.cat(nearest) == torch.arange(len(asked))).double().numpy())
    own = np.mean(hits, axis=0)
    scores = [100 * float(part.mean()) for part in (own, *hits)]
    kept = {"index": rows["index"][:], "prediction": own.tolist(), "label": [1.0] * len(own)}
    found = dict(zip(TRANSLATION_METRICS, scores, strict=True))
    return Results(found | {"primary": scores[0]}, kept)


def _ranked(
    vectors: torch.Tensor,
    corpus: torch.Tensor,
    queries: Sequence[int],
    passages: Sequence[int],
    relevant: Mapping[int, Mapping[int, float]],
) -> tuple[dict[int, dict[int, float]], dict[int, int]]:
    """By query the scores of the passages that are nearest, and how many that were not judged are as near as the last.

    All judged passages as near as the last one are included: which of equals the search kept follows from the
    corpus's order, and no score may.
    """
    place_of = {passage: place for place, passage in enumerate(passages)}
    # A text that is a query itself is not part of the corpus.
    named = [[place_of[one] for one in relevant[query] if one in place_of] for query in queries]
    width = max(map(len, named))
    padded = torch.tensor(
        [[*places, *[-1] * (width - len(places))] for places in named], dtype=torch.int64
    )
    found = exact_search(vectors, corpus, _DEPTH, padded)
    ranked: dict[int, dict[int, float]] = {}
    tied: dict[int, int] = {}
    for at, query in enumerate(queries):
        scores = found.scores[at].tolist()
        hits = dict(
            zip((passages[place] for place in found.places[at].tolist()), scores, strict=True)
        )
        known = zip(named[at], found.known[at].tolist(), strict=False)
        more = {passages[place]: score for place, score in known if score == scores[-1]}
        ranked[query] = hits | more
        tied[query] = int(found.tied[at]) - (len(ranked[query]) - len(hits))
    return ranked, tied


def some_retrieval_rows(rows: Dataset, wanted: int) -> list[int]:
    """Places of about this many rows: evenly spaced queries, all passages judged for them, and others."""
    if wanted >= len(rows):
        return list(range(len(rows)))
    judged = rows[JUDGED][:]
    places = {number: place for place, number in enumerate(rows["index"][:])}
    queries = [place for place, own in enumerate(judged) if own]
    chosen = _spaced(queries, max(1, wanted // _SHARE))
    kept = {*chosen} | {places[number] for place in chosen for number in judged[place]}
    others = [place for place, own in enumerate(judged) if not own and place not in kept]
    return sorted(kept | {*_spaced(others, max(0, wanted - len(kept)))})


def _spaced(places: Sequence[int], count: int) -> list[int]:
    """So many of some places, evenly spaced."""
    if count >= len(places):
        return list(places)
    return [places[place] for place in np.linspace(0, len(places) - 1, count).round().astype(int)]


# The nearest of many vectors, exactly: matrix products of some queries with the full corpus.


_SCORES_AT_ONCE = 1 << 26


class Found(NamedTuple):
    """Of each query its best, best first.

    `scores`: (Q, k) float32. `places`: (Q, k) int64, rows of the corpus. `tied`: (Q,) int64, how many other rows
    have the score of the last one. `known`: (Q, m) float32, the scores of the rows that were named, NaN of none.
    """

    scores: Tensor
    places: Tensor
    tied: Tensor
    known: Tensor


@torch.inference_mode()
def exact_search(queries: Tensor, corpus: Tensor, k: int, named: Tensor) -> Found:
    """The k rows of the corpus whose inner product with a query is greatest.

    Inner products in float32; cosines, where the vectors have length 1. Which of equals are among the k is undefined,
    but the number of further ones is returned, so that a score need not depend on it.

    Args:
        queries: (Q, d).
        corpus: (N, d).
        k: how many; all of a corpus that has fewer.
        named: (Q, m) rows of the corpus whose scores are wanted at any rank, -1 for none.
    """
    searched, size = corpus.float().T, max(1, _SCORES_AT_ONCE // len(corpus))
    parts = []
    for some, rows in zip(queries.float().split(size), named.split(size), strict=True):
        scores = some @ searched
        best, places = scores.topk(min(k, len(corpus)), dim=1)
        last = best[:, -1:]
        tied = (scores == last).sum(dim=1) - (best == last).sum(dim=1)
        known = scores.gather(1, rows.clamp(min=0)).masked_fill(rows < 0, torch.nan)
        parts.append(Found(best, places, tied, known))
    return Found(*(torch.cat(column) for column in zip(*parts, strict=True)))
