"""Scores of embeddings by what they retrieve: queries, a corpus, and what of it is relevant.

A split holds each text once. A query's row names the rows that were judged for it, and their grades; a passage's row
names none. Search is exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset, List, Value
from torch import Tensor

from limbeck.embedding.embedder import WAYS
from limbeck.embedding.folder import COSINE
from limbeck.support.errors import LimbeckError
from limbeck.tasks.metrics import is_ranking_metric, mean_scores, retrieval_scores
from limbeck.tasks.rules import Results, TaskLike

RETRIEVAL_METRICS = ("ndcg@10", "mrr@10", "recall@10", "recall@100")
JUDGED, GRADES = "judged", "grades"
"""Columns of a split: of a query the numbers (`index`) of the passages that were judged, and their grades."""
RETRIEVAL_FEATURES = {JUDGED: List(Value("int64")), GRADES: List(Value("float32"))}
_DEPTH = 100
_SHARE = 4


def retrieves(task: TaskLike) -> bool:
    """Whether a task's scores are of what is retrieved."""
    return is_ranking_metric(task.primary)


def retrieval_results(
    task: TaskLike, vectors: np.ndarray, rows: Dataset, similarity: str = COSINE
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
    searched = WAYS[similarity].searched(torch.from_numpy(np.asarray(vectors, dtype=np.float32)))
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


def _ranked(
    vectors: torch.Tensor,
    corpus: torch.Tensor,
    queries: Sequence[int],
    passages: Sequence[int],
    relevant: Mapping[int, Mapping[int, float]],
) -> tuple[dict[int, dict[int, float]], dict[int, int]]:
    """By query the scores of the passages that are nearest, and how many that were not judged are as near as the last.

    Of what was judged, all that is as near as the last is among them: which of equals the search kept follows from the
    corpus's order, and no score may.
    """
    place_of = {passage: place for place, passage in enumerate(passages)}
    # A text that is a query itself is none of the corpus.
    named = [[place_of[one] for one in relevant[query] if one in place_of] for query in queries]
    width = max(map(len, named))
    padded = torch.tensor(
        [[*places, *[-1] * (width - len(places))] for places in named], dtype=torch.int64
    )
    found = exact_search(vectors, corpus, _DEPTH, named=padded)
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
    """Places of about so many rows: queries, evenly spaced, all that was judged for them, and other passages."""
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


# The nearest of many vectors, exactly: matrix products in pieces.


_PIECE = 1 << 16


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
def exact_search(
    queries: Tensor,
    corpus: Tensor,
    k: int,
    *,
    named: Tensor | None = None,
    piece: int = _PIECE,
    queries_at_once: int = 1024,
) -> Found:
    """The k rows of the corpus whose inner product with a query is greatest.

    Inner products in float32; cosines, where the vectors have length 1. At no time more than
    `queries_at_once` × (`piece` + k) scores are held, so that neither side's number is limited by them. Of equal
    scores the corpus's earlier row comes first, whatever the pieces; how many more there are is said, so that a score
    need not depend on the corpus's order.

    Args:
        queries: (Q, d).
        corpus: (N, d); read a piece at a time, so that it may lie in a memory-mapped file or on CPU.
        k: how many; all of a corpus that holds fewer.
        named: (Q, m) rows of the corpus whose scores are wanted wherever they stand, -1 for none.
        piece: rows of the corpus at once.
        queries_at_once: rows of the queries at once.

    Raises:
        LimbeckError: the widths differ, a side is empty or holds what is not finite, or k is below 1.
    """
    _check(queries, corpus, k, piece, queries_at_once)
    if named is None:
        named = torch.empty((len(queries), 0), dtype=torch.int64, device=queries.device)
    parts = [
        _search(own, corpus, min(k, len(corpus)), rows, piece)
        for own, rows in zip(
            queries.split(queries_at_once), named.split(queries_at_once), strict=True
        )
    ]
    return Found(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _search(queries: Tensor, corpus: Tensor, k: int, named: Tensor, piece: int) -> Found:
    own = queries.float()
    best = own.new_empty((len(own), 0))
    places = torch.empty((len(own), 0), dtype=torch.int64, device=own.device)
    tied = torch.zeros(len(own), dtype=torch.int64, device=own.device)
    known = own.new_full(named.shape, torch.nan)
    for start in range(0, len(corpus), piece):
        part = corpus[start : start + piece].to(own.device, torch.float32)
        products = own @ part.T
        if not bool(products.isfinite().all()):
            raise LimbeckError(
                "exact search: inner products are not finite",
                "check the vectors for NaN and infinity",
            )
        scores = torch.cat([best, products], dim=1)
        numbers = torch.arange(start, start + len(part), device=own.device).expand(len(own), -1)
        numbers = torch.cat([places, numbers], dim=1)
        here = (named >= start) & (named < start + len(part))
        at = (named - start).clamp(0, len(part) - 1)
        known = torch.where(here, products.gather(1, at), known)
        # What stands in a row keeps the corpus's order among equals; topk keeps none.
        order = _first_of_equals(scores, k)
        before = best[:, -1:]
        best, places = scores.gather(1, order), numbers.gather(1, order)
        least = best[:, -1:]
        left = (scores == least).sum(dim=1) - (best == least).sum(dim=1)
        # Those left out of earlier pieces count as long as the last score is still theirs.
        still = (before == least).any(dim=1)
        tied = torch.where(still, tied, 0) + left
    return Found(best, places, tied, known)


def _first_of_equals(scores: Tensor, k: int) -> Tensor:
    """Columns of the k greatest of each row (Q, k), earlier columns first among equals."""
    if k >= scores.shape[1]:
        return scores.sort(dim=1, descending=True, stable=True).indices
    least = scores.topk(k, dim=1).values[:, -1:]
    # Of those that equal the least of them as many as there is room for, from the left.
    above = scores > least
    equal = scores == least
    room = k - above.sum(dim=1, keepdim=True)
    kept = above | (equal & (equal.cumsum(dim=1) <= room))
    columns = kept.nonzero()[:, 1].reshape(len(scores), k)
    order = scores.gather(1, columns).sort(dim=1, descending=True, stable=True).indices
    return columns.gather(1, order)


def _check(queries: Tensor, corpus: Tensor, k: int, piece: int, at_once: int) -> None:
    if queries.dim() != 2 or corpus.dim() != 2 or queries.shape[1] != corpus.shape[1]:
        raise LimbeckError(
            f"exact search: queries of shape {tuple(queries.shape)}, corpus of {tuple(corpus.shape)}",
            "give a matrix of vectors for each, all of one width",
        )
    if not len(queries) or not len(corpus):
        raise LimbeckError("exact search: there are no queries or no corpus", "give some of each")
    if min(k, piece, at_once) < 1:
        raise LimbeckError(
            f"exact search: k={k}, piece={piece}, queries_at_once={at_once}", "give 1 or more"
        )
