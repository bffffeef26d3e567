"""Batches that hold all candidates of a query together. Part of `limbeck.data`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler

from limbeck.data.row_facts import RowFacts
from limbeck.data.sampler import in_pieces
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TaskType
from limbeck.tasks.ranking_metrics import by_query

_MEGABATCH = 50


def together(
    kind: TaskType,
    facts: RowFacts,
    seed: int,
    *,
    batch_size: int,
    candidates: int | None = None,
    lengths: np.ndarray | None = None,
) -> QuerySampler | None:
    """The order of rows that belong together; None where each stands for itself, or nobody knows.

    Args:
        kind: of the rows.
        facts: about them.
        seed: as of `QuerySampler`, and so are the others.

    Raises:
        LimbeckError: as of `QuerySampler`.
    """
    queries = None if kind.group_column is None else facts.groups(kind.group_column)
    if queries is None:
        return None
    grades, asking, reading = facts.labels, None, kind.candidates
    if reading is not None:
        grades = facts.numbers_of(reading.grades_of[0])
        asking = np.isnan(grades) if reading.queries_are_rows and grades is not None else None
    return QuerySampler(
        queries, seed, batch_size=batch_size, candidates=candidates, grades=grades,
        asking=asking, lengths=lengths,
    )  # fmt: skip


class QuerySampler(Sampler[int]):
    """An order of rows in which the candidates of a query stand in one batch: a pure function of (seed, epoch).

    Queries are shuffled and fill batch after batch: into the room that is left goes the next query that fits it. Only
    where none does is one split, whose parts are then lists of their own; that does not happen where queries have
    equally many candidates and batches are a multiple of that. A query of more candidates than a batch has room for
    is always split.

    With `candidates` an epoch has that many of a query at most: one of its best grade (any of several such), if there
    are grades, and others at random, sampled again every epoch. Rows that are no candidates but the query itself are in
    every epoch, beside them.

    Args:
        queries: of which query each row is, (n,).
        seed: with the epoch it decides the order.
        batch_size: rows of a forward pass.
        candidates: of a query in an epoch at most; None for all.
        grades: (n,), NaN where there is none; None for no grades.
        asking: which rows are queries themselves, boolean (n,); None for none.
        lengths: of each row, (n,); with them batches hold queries whose longest rows are of similar length.

    Raises:
        LimbeckError: fewer than two candidates, or more than a batch has room for.
    """

    def __init__(
        self,
        queries: np.ndarray,
        seed: int,
        *,
        batch_size: int,
        candidates: int | None = None,
        grades: np.ndarray | None = None,
        asking: np.ndarray | None = None,
        lengths: np.ndarray | None = None,
    ) -> None:
        beside = int(asking is not None and asking.any())
        if candidates is not None and not 2 <= candidates <= batch_size - beside:
            raise LimbeckError(
                f"candidates: {candidates}{' and their query' * beside}, and batches have {batch_size} rows",
                f"give 2 or more of each query, and a batch_size that is a multiple of {candidates + beside}",
            )
        self.groups = by_query(np.asarray(queries)) if len(queries) else []
        self.seed, self.epoch, self.batch_size = seed, 0, batch_size
        self.candidates = candidates
        self.grades = None if grades is None else np.nan_to_num(grades, nan=-np.inf)
        self.asking = asking
        self.lengths = None if lengths is None else np.asarray(lengths)

    @property
    def sizes(self) -> np.ndarray:
        """How many candidates each query has in an epoch, (queries,)."""
        sizes = np.array([len(rows) for rows in self.groups], dtype=np.int64)
        if self.candidates is None:
            return sizes
        return np.minimum(sizes, self._beside() + self.candidates)

    def _beside(self) -> np.ndarray:
        """How many rows of each group are a query itself, (queries,)."""
        if self.asking is None:
            return np.zeros(len(self.groups), dtype=np.int64)
        return np.array([self.asking[rows].sum() for rows in self.groups], dtype=np.int64)

    @property
    def split(self) -> int:
        """How many queries of this epoch do not stand in one batch."""
        parts: dict[int, set[int]] = {}
        whose = {int(row): place for place, rows in enumerate(self.groups) for row in rows}
        for place, row in enumerate(self):
            parts.setdefault(whose[row], set()).add(place // self.batch_size)
        return sum(len(batches) > 1 for batches in parts.values())

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, counted from 0, whose order the next iteration yields."""
        self.epoch = epoch

    def __len__(self) -> int:
        return int(self.sizes.sum())

    def __iter__(self) -> Iterator[int]:
        generator = np.random.default_rng([self.seed, self.epoch])
        chosen = [self._some(rows, generator) for rows in self.groups]
        order = generator.permutation(len(chosen))
        if self.lengths is not None:
            order = self._by_length(order, chosen)
        batches = _filled([chosen[place] for place in order], self.batch_size)
        whole = len(batches) - (len(self) % self.batch_size > 0)
        shuffled = [batches[place] for place in self._batch_order(batches[:whole], generator)]
        return in_pieces(np.concatenate([*shuffled, *batches[whole:], np.empty(0, np.int64)]))

    def _some(self, rows: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """The candidates of one query in this epoch, behind the query itself where it is a row."""
        asking = rows[:0] if self.asking is None else rows[self.asking[rows]]
        if self.candidates is None or len(rows) <= len(asking) + self.candidates:
            return rows
        order = generator.permutation(rows if self.asking is None else rows[~self.asking[rows]])
        if self.grades is not None:
            best = int(self.grades[order].argmax())
            order[[0, best]] = order[[best, 0]]
        return np.concatenate([asking, order[: self.candidates]])

    def _by_length(self, order: np.ndarray, chosen: list[np.ndarray]) -> np.ndarray:
        """Longest first within stretches of as many queries as fill 50 batches."""
        assert self.lengths is not None
        longest = np.array([self.lengths[rows].max() for rows in chosen])
        mega = max(1, _MEGABATCH * self.batch_size // max(int(self.sizes.mean()), 1))
        order = order.copy()
        for start in range(0, len(order), mega):
            part = order[start : start + mega]
            order[start : start + mega] = part[np.argsort(-longest[part], kind="stable")]
        return order

    def _batch_order(self, full: list[np.ndarray], generator: np.random.Generator) -> np.ndarray:
        """Random; by length the batch of the longest row comes first, so that a full memory shows at once."""
        if self.lengths is None or not full:
            return np.arange(len(full))
        order = generator.permutation(len(full))
        longest = int(np.argmax([self.lengths[full[place]].max() for place in order]))
        order[[0, longest]] = order[[longest, 0]]
        return order


def _filled(groups: list[np.ndarray], size: int) -> list[np.ndarray]:
    """Batches of `size` rows, the last one of what is left."""
    waiting: dict[int, deque[int]] = {}
    for place, rows in enumerate(groups):
        waiting.setdefault(len(rows), deque()).append(place)
    rest = dict(enumerate(groups))
    batches = []
    while waiting:
        batch: list[np.ndarray] = []
        room = size
        while room and waiting:
            place = _next(waiting, room)
            rows, rest[place] = rest[place][:room], rest[place][room:]
            batch.append(rows)
            room -= len(rows)
            if len(rest[place]):  # the first in line, as it was when it was split
                waiting.setdefault(len(rest[place]), deque()).appendleft(place)
        batches.append(np.concatenate(batch))
    return batches


def _next(waiting: dict[int, deque[int]], room: int) -> int:
    """The one that fills the room, else the first in line that fits, else the first in line."""
    fitting = [length for length in waiting if length <= room] or [*waiting]
    chosen = room if room in waiting else min(fitting, key=lambda length: waiting[length][0])
    place = waiting[chosen].popleft()
    if not waiting[chosen]:
        del waiting[chosen]
    return place
