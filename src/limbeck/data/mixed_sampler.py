"""Batches that hold a fixed share of labelled examples beside unlabelled ones. Part of `limbeck.data`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler

from limbeck.data.sampler import in_pieces
from limbeck.support.errors import LimbeckError

_MEGABATCH = 50


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
            "raise batch_size, or choose a share that leaves room for labelled and unlabelled examples",
        )
    return count


class MixedSampler(Sampler[int]):
    """An order in which every batch has the same share of labelled examples: a pure function of (seed, epoch).

    An epoch is one pass over the unlabelled examples. Labelled ones are gone through as often as the share asks for,
    in another order each time, so that an epoch may hold one many times, or only some of them. The last batch may be
    smaller, in the same proportion.

    Args:
        labelled: which examples have a label, (n,) of bool.
        seed: with the epoch it decides the order.
        share: of labelled examples in a batch, between 0 and 1; to the nearest whole number.
        batch_size: examples in a forward pass.
        lengths: of each example, (n,); with them batches hold examples of similar length.

    Raises:
        LimbeckError: no labelled or no unlabelled examples, or a share that is none or all of a batch.
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
                f"labelled_share: {share:g}, and there are no {none} training rows",
                "leave it out",
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
        batches = self._in_random_order(np.concatenate(full, axis=1), generator)
        return in_pieces(np.concatenate([batches.reshape(-1), *rest]))

    def _passes(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """So many labelled examples, pass after pass."""
        passes = -(-count // len(self.labelled))
        return np.concatenate([generator.permutation(self.labelled) for _ in range(passes)])[:count]

    def _grouped(self, order: np.ndarray, in_batch: int) -> np.ndarray:
        """By length within megabatches, long ones first, on both sides alike."""
        if self.lengths is None:
            return order
        mega, order = _MEGABATCH * in_batch, order.copy()
        for start in range(0, len(order), mega):
            part = order[start : start + mega]
            order[start : start + mega] = part[np.argsort(-self.lengths[part], kind="stable")]
        return order

    def _in_random_order(self, batches: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Shuffled where they were sorted; that of the longest example first, so that a full memory shows at once."""
        if self.lengths is None or not len(batches):
            return batches
        batches = generator.permutation(batches)
        longest = int(self.lengths[batches].max(1).argmax())
        batches[[0, longest]] = batches[[longest, 0]]
        return batches
