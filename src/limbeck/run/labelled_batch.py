"""Rows that a model is asked about, as a batch. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

from limbeck.data import Collator
from limbeck.tasks import Task
from limbeck.tasks.rules import CUT


class LabelledBatch(NamedTuple):
    """Attributes: what the model reads; the places of the rows that the length limit cut."""

    batch: dict[str, Tensor]
    truncated: frozenset[int]


def labelled_batch(
    collate: Collator, task: Task, max_length: int, texts: Mapping[str, list[Any]]
) -> LabelledBatch:
    """Some rows, by column, which hold `index`, encoded by the collator's tokenizer."""
    encoded = task.kind.encode(task, collate.tokenizer, max_length, dict(texts))
    cut = frozenset(place for place, was in enumerate(encoded[CUT]) if was)
    names = [name for name in encoded if name != CUT]
    values = zip(*(encoded[name] for name in names), strict=True)
    return LabelledBatch(collate([dict(zip(names, row, strict=True)) for row in values]), cut)
