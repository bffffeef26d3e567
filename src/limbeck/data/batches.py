"""Encoded rows in batches on a device: how a model is run over rows outside of training.

Part of the data stage, after the collator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor

Collate = Callable[[list[dict[str, Any]]], dict[str, Tensor]]


def batches_of(
    rows: Any,
    collate: Collate,
    size: int,
    device: torch.device | str,
    *,
    order: Sequence[int] | None = None,
) -> Iterator[dict[str, Tensor]]:
    """Walk over rows once.

    Args:
        rows: a `Dataset`, or anything with a length and examples by number.
        collate: makes a batch of examples.
        size: examples in a batch; the last one may have fewer.
        device: where batches lie.
        order: places of the rows, all or some, in which they are walked; by default their own.
    """
    places = range(len(rows)) if order is None else order
    for start in range(0, len(places), size):
        batch = collate(_examples(rows, [int(place) for place in places[start : start + size]]))
        yield {name: value.to(device) for name, value in batch.items()}


def _examples(rows: Any, places: list[int]) -> list[dict[str, Any]]:
    if not isinstance(rows, Dataset):
        return [rows[place] for place in places]
    # One read for all of them, where each alone is a read of the table.
    columns = rows[places]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
