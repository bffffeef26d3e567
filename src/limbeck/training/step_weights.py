"""How much a micro-batch weighs in its step. Part of `limbeck.training`.

A term is a mean over the examples of a micro-batch, or over those of them that have a label. The Trainer averages over
micro-batches, and processes over each other: weighed by its part of what the step holds of either, every micro-batch
gives what it would give to the mean over one large batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from limbeck.functional.labels import has_label
from limbeck.support.machine import on_host

Count = int | Tensor
"""A number; a tensor where only the device knows it, which no step waits for."""


class BatchCounts(NamedTuple):
    """How many examples a batch, or a step, holds, and how many of them have a label."""

    examples: Count
    labelled: Count

    @classmethod
    def of(cls, batch: Any, label_column: str) -> BatchCounts:
        """Those of a batch; where it has no such column, all examples are taken as labelled."""
        if isinstance(on_host(batch), RepeatedExamples):
            return cls(0, 0)
        examples, labels = examples_in(batch), on_host(batch).get(label_column)
        if not isinstance(labels, Tensor):
            return cls(examples, examples)
        known = has_label(labels)
        if known.dim() > 1:  # by token: an example counts that has any
            known = known.flatten(1).any(1)
        found = known.sum()
        return cls(examples, int(found) if found.device.type == "cpu" else found)

    @classmethod
    def together(cls, counts: Iterable[BatchCounts]) -> BatchCounts:
        """Those of several batches together."""
        each = list(counts)
        return cls(sum(one.examples for one in each), sum(one.labelled for one in each))

    def on(self, device: torch.device) -> Tensor:
        """Both on a device, float32 (1, 2), without waiting for it."""
        return torch.stack([torch.ones((), device=device) * count for count in self])[None]


class RepeatedExamples(dict[str, Any]):
    """A batch of examples that another batch of the epoch holds already: it counts for nothing."""


class BatchWeights(NamedTuple):
    """How much a micro-batch weighs next to the mean of its step's, by what a term is a mean over."""

    examples: float | Tensor = 1.0
    labelled: float | Tensor = 1.0

    @property
    def even(self) -> bool:
        """Whether it weighs as much as the others in every term, as far as the host knows."""
        return all(isinstance(weight, float) and weight == 1.0 for weight in self)

    def weighed(
        self, terms: Mapping[str, Tensor], of_labelled: frozenset[str]
    ) -> dict[str, Tensor]:
        """The terms times their weights; `of_labelled` names those that are means over labelled examples."""
        return {
            name: value * (self.labelled if name in of_labelled else self.examples)
            for name, value in terms.items()
        }


@dataclass(frozen=True)
class StepCounts:
    """What an optimisation step holds.

    Attributes:
        parts: micro-batches, of all processes.
        total: examples of all of them.
    """

    parts: int
    total: BatchCounts

    def weights_of(self, own: BatchCounts) -> BatchWeights:
        """The weights of a micro-batch of the step: 1 where all hold as much."""
        pairs = zip(own, self.total, strict=True)
        return BatchWeights(*(part * self.parts / _at_least_one(whole) for part, whole in pairs))


def _at_least_one(count: Count) -> Count:
    return count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1)


def first_examples(batch: Any, count: int) -> dict[str, Any]:
    """So many of a batch's examples."""
    size = examples_in(batch)
    return {
        name: value[:count]
        if isinstance(value, Tensor) and value.dim() and len(value) == size
        else value
        for name, value in batch.items()
    }


def examples_in(batch: Any) -> int:
    """How many examples a batch holds."""
    sizes = (len(value) for value in batch.values() if isinstance(value, Tensor) and value.dim())
    return next(sizes, 0)
