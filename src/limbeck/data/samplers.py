"""In which order an epoch visits the examples: a pure function of (seed, epoch).

Between data and engine. The stock length-grouped sampler draws from torch's global generator, so a
run that was killed and started again sees another order; this one sees the same.
"""

from collections import deque
from collections.abc import Iterator, Sequence, Sized

import numpy as np
import torch
from torch.utils.data import Sampler

from limbeck.data.row_facts import RowFacts
from limbeck.support.errors import LimbeckError
from limbeck.tasks import TaskType
from limbeck.tasks.metrics import by_query

_PIECE = 65_536


class EpochSampler(Sampler[int]):
    """Shuffles the indices 0..n−1 in each epoch, reproducibly.

    `data` is a dataset or its length. With `lengths` (tokens per example) and `batch_size` (examples
    of one optimization step) the order is length-grouped: shuffled, cut into megabatches of up to
    50 batches, sorted by length within each, so that batches need little padding. The batches
    themselves are then shuffled: in the stock sampler's order they fall from long to short, and the
    last examples a model trains on would be the shortest of all. Only the batch of the longest
    example keeps its place, the first, so that running out of memory shows at once.

    The engine calls `set_epoch` before each epoch; accelerate does the same for a sampler it finds
    in a DataLoader. Raises LimbeckError when `lengths` does not fit or comes without `batch_size`.
    """

    def __init__(
        self,
        data: int | Sized,
        seed: int,
        *,
        lengths: Sequence[int] | np.ndarray | None = None,
        batch_size: int | None = None,
    ) -> None:
        self.length = data if isinstance(data, int) else len(data)
        self.seed = seed
        self.epoch = 0
        self.lengths = None if lengths is None else np.asarray(lengths)
        self.batch_size = batch_size
        if self.lengths is not None and len(self.lengths) != self.length:
            raise LimbeckError(
                f"{len(self.lengths)} lengths for {self.length} examples", "give one per example"
            )
        if self.lengths is not None and (batch_size is None or batch_size < 1):
            raise LimbeckError(
                f"grouping by length needs a batch size, got {batch_size}", "give batch_size ≥ 1"
            )

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, counted from 0, whose order the next iteration yields."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[int]:
        # SeedSequence spreads the pair over all bits: seed + epoch would give (0, 1) and (1, 0)
        # the same order.
        mixed = np.random.SeedSequence([self.seed, self.epoch]).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(mixed[0]) & (2**63 - 1))
        if self.lengths is None or not self.length:
            return in_pieces(torch.randperm(self.length, generator=generator).numpy())
        assert self.batch_size is not None
        order = length_grouped(self.lengths, self.batch_size, generator)
        return in_pieces(shuffled_batches(order, self.batch_size, generator))


def in_pieces(order: np.ndarray) -> Iterator[int]:
    """The numbers of an order, few of them as objects at a time."""
    for start in range(0, len(order), _PIECE):
        yield from order[start : start + _PIECE].tolist()


# Orders in which batches hold examples of similar length. The order of transformers' length-
# grouped sampler, in arrays: millions of numbers take eight bytes each in one, and five times that
# in a list.


_MEGABATCH = 50


def length_grouped(lengths: np.ndarray, batch_size: int, generator: torch.Generator) -> np.ndarray:
    """Places of the examples, int64 (n,): shuffled, then sorted by length within megabatches, long ones first.

    A megabatch is up to 50 batches, a quarter of all at most. The longest example of all comes first, so that running
    out of memory shows at once.
    """
    order = torch.randperm(len(lengths), generator=generator).numpy()
    mega = (min(len(lengths) // (batch_size * 4), _MEGABATCH) or 1) * batch_size
    order = long_ones_first(order, lengths, mega)
    longest = int(lengths[order[::mega]].argmax()) * mega
    order[0], order[longest] = order[longest], order[0]
    return order


def long_ones_first(order: np.ndarray, lengths: np.ndarray, size: int) -> np.ndarray:
    """The order, sorted by length within stretches of a size; equal lengths keep their places."""
    order = order.copy()
    for start in range(0, len(order), size):
        part = order[start : start + size]
        order[start : start + size] = part[np.argsort(-lengths[part], kind="stable")]
    return order


def random_order(longest: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A random order of batches, given the longest example of each; the batch with the longest of all is first.

    A full memory then shows at once.
    """
    order = generator.permutation(len(longest))
    if len(order):
        first = int(longest[order].argmax())
        order[[0, first]] = order[[first, 0]]
    return order


def shuffled_batches(order: np.ndarray, batch_size: int, generator: torch.Generator) -> np.ndarray:
    """The batches of an order, all but the first and a last one that is not full in random order."""
    full = len(order) // batch_size
    sampled = torch.randperm(max(full - 1, 0), generator=generator).numpy()
    whole = order[: full * batch_size].reshape(full, batch_size)
    moved = np.concatenate([whole[:1], whole[1:][sampled]]).reshape(-1)
    return np.concatenate([moved, order[full * batch_size :]])


# Batches with a fixed share of labeled examples next to unlabeled ones.


def labelled_in_batch(share: float, batch_size: int) -> int:
    """How many examples of a batch are labelled ones.

    Raises:
        LimbeckError: none or all of them.
    """
    count = int(share * batch_size + 0.5)
    if not 0 < count < batch_size:
        raise LimbeckError(
            f"labelled_share: {share:g} of batch_size {batch_size} is {count or 'no'} "
            f"{'examples, all of them' if count else 'example'}",
            "raise batch_size, or choose a share that leaves room for labeled and unlabeled examples",
        )
    return count


class MixedSampler(Sampler[int]):
    """An order in which every batch has the same share of labeled examples: a pure function of (seed, epoch).

    An epoch is one pass over the unlabeled examples. Labeled ones are gone through as often as the share asks for,
    in another order each time, so that an epoch may hold one many times, or only some of them. The last batch may be
    smaller, in the same proportion.

    Args:
        labelled: which examples have a label, (n,) of bool.
        seed: with the epoch it decides the order.
        share: of labeled examples in a batch, between 0 and 1; rounded to examples.
        batch_size: examples in a forward pass.
        lengths: of each example, (n,); with them batches hold examples of similar length.

    Raises:
        LimbeckError: no labeled or no unlabeled examples, or a share that rounds to zero or to a full batch.
    """

    def __init__(
        self,
        labelled: np.ndarray,
        seed: int,
        *,
        share: float,
        batch_size: int,
        lengths: np.ndarray | None = None,
    ) -> None:
        self.labelled, self.unlabelled = np.flatnonzero(labelled), np.flatnonzero(~labelled)
        if not len(self.labelled) or not len(self.unlabelled):
            none = "unlabelled" if len(self.labelled) else "labelled"
            raise LimbeckError(
                f"labelled_share: {share:g}, and there are no {none} training rows", "leave it out"
            )
        self.seed, self.epoch, self.batch_size, self.lengths = seed, 0, batch_size, lengths
        self.known = labelled_in_batch(share, batch_size)
        self.others = batch_size - self.known
        self.batches, rest = divmod(len(self.unlabelled), self.others)
        # At least one: a batch without is another loss.
        self.last = (-(-rest * self.known // self.others), rest)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, counted from 0, whose order the next iteration yields."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.batches * self.batch_size + sum(self.last)

    def __iter__(self) -> Iterator[int]:
        generator = np.random.default_rng([self.seed, self.epoch])
        others = generator.permutation(self.unlabelled)
        known = self._passes(self.batches * self.known + self.last[0], generator)
        sides = (known, self.known, self.last[0]), (others, self.others, self.last[1])
        full, rest = [], []
        for order, in_batch, in_last in sides:
            whole = order[: len(order) - in_last]
            full.append(self._grouped(whole, in_batch).reshape(self.batches, in_batch))
            rest.append(order[len(order) - in_last :])
        batches = np.concatenate(full, axis=1)
        if self.lengths is not None:  # they were sorted
            batches = batches[random_order(self.lengths[batches].max(1, initial=0), generator)]
        return in_pieces(np.concatenate([batches.reshape(-1), *rest]))

    def _passes(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """So many labeled examples, pass after pass."""
        passes = -(-count // len(self.labelled))
        return np.concatenate([generator.permutation(self.labelled) for _ in range(passes)])[:count]

    def _grouped(self, order: np.ndarray, in_batch: int) -> np.ndarray:
        """By length within megabatches, on both sides alike."""
        if self.lengths is None:
            return order
        return long_ones_first(order, self.lengths, _MEGABATCH * in_batch)


# Batches that hold all candidates of a query together.


def together(
    kind: TaskType,
    facts: RowFacts,
    seed: int,
    *,
    batch_size: int,
    candidates: int | None = None,
    lengths: np.ndarray | None = None,
) -> "QuerySampler | None":
    """The order of rows that belong together; None if rows are independent, or it is unknown.

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
    """An order of rows in which the candidates of a query are in one batch: a pure function of (seed, epoch).

    Queries are shuffled and fill batch after batch: into the room that is left goes the next query that fits it. Only
    where none does is one split, whose parts are then lists of their own; that does not happen where queries have
    equally many candidates and batches are a multiple of that. A query of more candidates than a batch has room for
    is always split.

    With `candidates` an epoch has that many of a query at most: one of its best grade (any of several such), if there
    are grades, and others at random, sampled again every epoch. Rows that are no candidates but the query itself are in
    every epoch, in addition.

    Args:
        queries: of which query each row is, (n,).
        seed: with the epoch it decides the order.
        batch_size: rows of a forward pass.
        candidates: most per query and epoch; None for all.
        grades: (n,), NaN if it is missing; None for no grades.
        asking: which rows are queries themselves, boolean (n,); None for no queries.
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
        found: np.ndarray = np.minimum(sizes, self._beside() + self.candidates)
        return found

    def _beside(self) -> np.ndarray:
        """How many rows of each group are a query itself, (queries,)."""
        if self.asking is None:
            return np.zeros(len(self.groups), dtype=np.int64)
        return np.array([self.asking[rows].sum() for rows in self.groups], dtype=np.int64)

    @property
    def split(self) -> int:
        """The number of queries of this epoch that are not in one batch."""
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
        places = np.arange(whole)
        if self.lengths is not None:
            longest = np.array([self.lengths[rows].max() for rows in batches[:whole]])
            places = random_order(longest, generator)
        shuffled = [batches[place] for place in places]
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
        return long_ones_first(order, longest, mega)


def _filled(groups: list[np.ndarray], size: int) -> list[np.ndarray]:
    """Batches of `size` rows; the last one contains the rest."""
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
    """The length that fills the room, otherwise the first in line that fits, otherwise the first in line."""
    fitting = [length for length in waiting if length <= room] or [*waiting]
    chosen = room if room in waiting else min(fitting, key=lambda length: waiting[length][0])
    place = waiting[chosen].popleft()
    if not waiting[chosen]:
        del waiting[chosen]
    return place
