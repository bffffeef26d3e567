"""How two embeddings are compared: by the cosine or the inner product, as a model says. Part of `limbeck.embedding`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from limbeck.embedding.embedding_modules import COSINE, DOT


class Similarity(NamedTuple):
    """One way.

    Attributes:
        of_pairs: of embeddings (n, 2, d) the similarity of each two (n,).
        searched: of embeddings (n, d) vectors (n, d) whose inner products are the similarities.
    """

    of_pairs: Callable[[np.ndarray], np.ndarray]
    searched: Callable[[Tensor], Tensor]


def _products(pairs: np.ndarray) -> np.ndarray:
    found: np.ndarray = (pairs[:, 0] * pairs[:, 1]).sum(axis=-1)
    return found


def _cosines(pairs: np.ndarray) -> np.ndarray:
    """0 where one is zero."""
    lengths = np.linalg.norm(pairs, axis=-1).prod(axis=1)
    return np.divide(_products(pairs), lengths, out=np.zeros(len(pairs)), where=lengths > 0)


def _unit(vectors: Tensor) -> Tensor:
    return F.normalize(vectors, dim=-1)


def _same(vectors: Tensor) -> Tensor:
    return vectors


WAYS: Mapping[str, Similarity] = MappingProxyType(
    {COSINE: Similarity(_cosines, _unit), DOT: Similarity(_products, _same)}
)
"""By the name that a model's folder has for it."""
