"""How a teacher's answers about one example lie in a table: one column for each thing seen.

Part of `limbeck.cache`. A pooled state has one size for all examples; token states, attention and
relations have the example's own number of tokens N in their shape and are stored without padding.
Hidden states and attention are float16 unless exactness is asked for, the answers to the task
float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from datasets import Features, LargeList, List, Value
from torch import Tensor

from limbeck.capture import Request, Seen, Trace

# In a shape: as many as the example has tokens.
TOKENS = None
Size = int | None
INDEX = "index"
LOGITS = "logits"

# Above it float16 has no number.
LARGEST_FLOAT16 = 65504.0


class Ask(NamedTuple):
    """What a run may ask of the teacher, and which part of it float16 is too coarse for."""

    request: Request
    exact: frozenset[Seen] = frozenset()

    def __or__(self, other: Ask) -> Ask:
        return Ask(self.request | other.request, self.exact | other.exact)

    def names(self) -> list[str]:
        """In words, sorted."""
        words = [f"{seen}{' (float32)' * (seen in self.exact)}" for seen in self.request.items]
        return sorted(words) + ["logits"] * self.request.logits


class Own(NamedTuple):
    """Where an example's tokens lie in a batch: the first of them, and how many there are."""

    first: int
    tokens: int


@dataclass(frozen=True)
class Column:
    """One stored quantity.

    Attributes:
        name: in the table.
        shape: of one example; `TOKENS` stands for its own number of tokens.
        dtype: float16 or float32.
        seen: what it is; None for the logits.
    """

    name: str
    shape: tuple[Size, ...]
    dtype: Literal["float16", "float32"]
    seen: Seen | None

    @property
    def fixed(self) -> bool:
        """Whether every example takes the same room."""
        return TOKENS not in self.shape

    def sizes(self, tokens: int) -> tuple[int, ...]:
        """The shape of an example of so many tokens."""
        return tuple(tokens if size is TOKENS else size for size in self.shape)

    def bytes(self, tokens: np.ndarray) -> int:
        """Room of examples of these lengths."""
        fixed = prod(size for size in self.shape if size is not TOKENS)
        power = sum(size is TOKENS for size in self.shape)
        return int(fixed * (tokens.astype(np.int64) ** power).sum() * self._itemsize)

    @property
    def _itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize

    def among_padding(self, own: Own) -> tuple[slice, ...]:
        """Where an example's value lies in one as wide as its batch."""
        tokens = slice(own.first, own.first + own.tokens)
        return tuple(tokens if size is TOKENS else slice(None) for size in self.shape)

    def of(self, trace: Trace) -> Tensor:
        """The tensor of a batch, (B, …)."""
        if self.seen is not None:
            return trace[self.seen]
        assert trace.logits is not None  # asked for
        return trace.logits

    @property
    def feature(self) -> List | LargeList:
        """Its type in the table: values in one row, flat."""
        value = Value(self.dtype)
        if self.fixed:
            return List(value, length=prod(self.sizes(0)))
        return LargeList(value)


@dataclass(frozen=True)
class Layout:
    """All columns of a store, those of a request."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, trace: Trace, ask: Ask) -> Layout:
        """The columns that hold what was asked, by the trace of a batch."""
        columns = [_column(seen, trace[seen], seen in ask.exact) for seen in ask.request.items]
        columns.sort(key=lambda column: column.name)
        if trace.logits is not None:
            per_token = trace.logits.dim() == 3
            shape: tuple[Size, ...] = (TOKENS,) if per_token else ()
            columns.append(Column(LOGITS, (*shape, trace.logits.shape[-1]), "float32", None))
        return cls(tuple(columns))

    @classmethod
    def read(cls, columns: list[dict[str, Any]]) -> Layout:
        """From what `written` gave."""
        return cls(
            tuple(
                Column(
                    column["name"],
                    tuple(column["shape"]),
                    column["dtype"],
                    None if column["seen"] is None else Seen(*column["seen"]),
                )
                for column in columns
            )
        )

    def written(self) -> list[dict[str, Any]]:
        """As JSON can keep it."""
        return [
            {"name": c.name, "shape": list(c.shape), "dtype": c.dtype, "seen": c.seen and [*c.seen]}
            for c in self.columns
        ]

    @property
    def features(self) -> Features:
        """The table's schema."""
        return Features(
            {INDEX: Value("int64")} | {column.name: column.feature for column in self.columns}
        )

    def bytes(self, tokens: np.ndarray) -> int:
        """Room of examples of these lengths."""
        return sum(column.bytes(tokens) for column in self.columns)


def _column(seen: Seen, value: Tensor, exact: bool) -> Column:
    shape: tuple[Size, ...]
    if seen.what != "hidden":
        heads = value.shape[1]
        last: Size = value.shape[3] if seen.what in ("query", "key", "value") else TOKENS
        shape = (heads, TOKENS, last)
    else:
        width = value.shape[-1]
        shape = (width,) if seen.pool else (TOKENS, width)
    name = "-".join([seen.what, seen.stack, str(seen.layer), *([seen.pool] if seen.pool else [])])
    return Column(name, shape, "float32" if exact else "float16", seen)


Alike = tuple[slice, Own]
"""Neighbours in a batch whose tokens lie at the same places."""


def runs_alike(mask: Tensor) -> list[Alike]:
    """The rows of a mask (B, N) in runs of like neighbours; batches sorted by length have few."""
    found: list[Alike] = []
    for own, rows in groupby(places(mask)):
        start = found[-1][0].stop if found else 0
        found.append((slice(start, start + len(list(rows))), own))
    return found


def places(mask: Tensor) -> list[Own]:
    """First real token and number of real tokens of each example of a mask (B, N)."""
    return list(map(Own, mask.int().argmax(1).tolist(), mask.sum(1).tolist()))


def storage_type(column: Column) -> torch.dtype:
    """What a column's values are stored in."""
    return torch.float16 if column.dtype == "float16" else torch.float32
