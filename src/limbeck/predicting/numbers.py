"""A number for a row: a regression's, a reranker's of pairs and lists of candidates. Part of `limbeck.predicting`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.stats import rankdata

from limbeck.predicting.model import RowModel
from limbeck.predicting.readers import (
    EMBEDDINGS,
    LABELS,
    PREDICTION,
    RANK,
    RANKS,
    ReadRows,
    RowReader,
)
from limbeck.support.errors import LimbeckError
from limbeck.tasks.rules import Rows

_LISTED = 1
"""The column, of a pair's two, that may hold lists."""
_PAIRS = 16_384
"""Pairs that are encoded at once: a row may have hundreds."""


class NumberReader(RowReader):
    """A number for every row, of one text or of a pair.

    The second text of a pair may be a list, a query's passages: each of them is paired with the first text, and the row
    has a list of numbers, None for a text that is missing.
    """

    outputs = (LABELS, RANKS)
    expects = "text that UTF-8 can hold; of a pair's second one a list of texts in every row, or text in every row"

    of_lists: bool | None = None
    """Whether the second column holds lists; the first row says it."""

    def reads(self, value: Any, column: int) -> bool:
        """A text, or in the second column what the row before holds."""
        if column != _LISTED:
            return super().reads(value, column)
        if self.of_lists is None:
            self.of_lists = isinstance(value, list)
        if not self.of_lists:
            return super().reads(value, column)
        return isinstance(value, list) and all(
            text is None or super(NumberReader, self).reads(text, column) for text in value
        )

    def check(self, asked: frozenset[str]) -> None:
        """Raise LimbeckError for ranks of what is no list, and for embeddings of lists."""
        if RANKS in asked and not self.of_lists:
            raise LimbeckError(
                "output ranks: they are given to the texts of a list, and every row holds one pair or one text",
                'give rows {"query": "…", "passages": ["…", "…"]}, or ask for labels',
            )
        if EMBEDDINGS in asked and self.of_lists:
            raise LimbeckError(
                "output embeddings: a row with a list of texts has none of its own",
                "give a pair on each row, or ask for labels and ranks",
            )

    def pieces(self, texts: Sequence[list[Any]]) -> Iterator[slice]:
        """As many rows as have a piece's pairs, at least one."""
        if not self.of_lists:
            yield from super().pieces(texts)
            return
        start = pairs = 0
        for row, listed in enumerate(texts[_LISTED]):
            if row > start and pairs + len(listed) > _PAIRS:
                yield slice(start, row)
                start, pairs = row, 0
            pairs += len(listed)
        yield slice(start, len(texts[_LISTED]))

    def encode(self, model: RowModel, texts: Sequence[list[Any]]) -> tuple[Rows, int]:
        """An example for every row, or for every text of its list."""
        if not self.of_lists:
            return super().encode(model, texts)
        pairs = [
            (one, other)
            for one, listed in zip(*texts, strict=True)
            for other in listed
            if other is not None
        ]
        if not pairs:
            return {"index": []}, 0
        return super().encode(model, [list(column) for column in zip(*pairs, strict=True)])

    def values(self, read: ReadRows, asked: frozenset[str]) -> dict[str, list[Any]]:
        """The numbers themselves; of lists also their ranks."""
        numbers = iter(float(one[0]) for one in read.kept) if asked & {LABELS, RANKS} else iter(())
        found: dict[str, list[Any]] = {name: [] for name in self.types(asked)}
        if not found:
            return found
        if not self.of_lists:
            return {PREDICTION: [*numbers]}
        for listed in read.texts[_LISTED]:
            there = [place for place, text in enumerate(listed) if text is not None]
            own = np.array([*islice(numbers, len(there))])
            for name, column in found.items():
                # Equal scores share the better rank, so that none depends on the list's order.
                numbered = own if name == PREDICTION else rankdata(-own, method="min")
                one: list[Any] = [None] * len(listed)
                for place, value in zip(there, numbered.tolist(), strict=True):
                    one[place] = value
                column.append(one)
        return found

    def types(self, asked: frozenset[str]) -> dict[str, pa.DataType]:
        """A number, or a list of them."""
        number = pa.float32()
        found: dict[str, pa.DataType] = {}
        if LABELS in asked:
            found[PREDICTION] = pa.list_(number) if self.of_lists else number
        return found | {RANK: pa.list_(pa.int32())} if RANKS in asked else found
