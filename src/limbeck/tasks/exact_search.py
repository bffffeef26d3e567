"""The nearest of many vectors, exactly: matrix products in pieces. Part of `limbeck.tasks`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from limbeck.support.errors import LimbeckError

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
