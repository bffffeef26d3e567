"""Outputs and labels of batches as arrays and padded columns. Part of `limbeck.tasks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from limbeck.functional.labels import NO_LABEL


def as_array(outputs: Tensor) -> np.ndarray:
    """Outputs of a batch on the CPU, floats in float32."""
    moved = outputs.detach().cpu()
    return (moved.float() if moved.is_floating_point() else moved).numpy()


def join(outputs: Iterable[np.ndarray]) -> np.ndarray:
    """Outputs of several batches under each other, narrower ones widened with −100."""
    parts = list(outputs)
    if parts[0].ndim < 2:
        return np.concatenate(parts)
    width = max(part.shape[1] for part in parts)
    widened = [
        np.pad(
            part,
            [(0, 0), (0, width - part.shape[1]), *[(0, 0)] * (part.ndim - 2)],
            constant_values=NO_LABEL,
        )
        for part in parts
    ]
    return np.concatenate(widened)


def pad_column(
    values: Sequence[Sequence[int]], width: int, fill: int, *, left: bool = False
) -> Tensor:
    """Lists of different lengths as one int64 tensor (B, width)."""
    padded = torch.full((len(values), width), fill, dtype=torch.int64)
    for row, value in enumerate(values):
        start = width - len(value) if left else 0
        padded[row, start : start + len(value)] = torch.tensor(value, dtype=torch.int64)
    return padded


def truncated(encoded: Any) -> list[bool]:
    """Which examples of a tokenizer's output lost text."""
    # Both texts' leftovers hang on the encoding, so nothing is tokenised twice to count them.
    return [bool(encoding.overflowing) for encoding in encoded.encodings]
