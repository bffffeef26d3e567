"""In which order an epoch visits the examples: a pure function of (seed, epoch).

Between data and engine. The stock length-grouped sampler draws from torch's global generator, so a
run that was killed and started again sees another order; this one sees the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized

import numpy as np
import torch
from torch.utils.data import Sampler

from limbeck.data.grouped_order import length_grouped, shuffled_batches
from limbeck.support.errors import LimbeckError

_PIECE = 65_536


class EpochSampler(Sampler[int]):
    """Shuffles the indices 0..n−1 in each epoch, reproducibly.

    `data` is a dataset or its length. With `lengths` (tokens per example) and `batch_size` (examples
    of one optimisation step) the order is length-grouped: shuffled, cut into megabatches of up to
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
