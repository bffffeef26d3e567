"""Facts about all training rows that are needed before the first step, for any collection. Part of `limbeck.data`.

An encoded table answers from its columns, rows that are encoded in their turn answer themselves, and of other
collections little is known.
"""

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow.compute as pc
from datasets import ClassLabel, Dataset, List, Value

from limbeck.outputs.key import add_rows
from limbeck.tasks import Reading

_INDEX, _LABELS, _TOKENS = "index", "labels", "input_ids"


class RowFacts:
    """Facts about the training rows together, found without a model: for a collection of which little is known."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    @property
    def encoded(self) -> bool:
        """Whether all rows are encoded already; of others each batch is in its turn."""
        return True

    @property
    def numbers(self) -> np.ndarray | None:
        """Each example's `index`, int64 (n,); None without indices."""
        return None

    @property
    def labels(self) -> np.ndarray | None:
        """Each example's class id or number, (n,), or 0 and 1 for each class, (n, C); None where they have no such
        label, or it is unknown."""
        return None

    @property
    def label_column(self) -> Any:
        """Each example's labels as its task type encodes them; None without labels, or if they are unknown."""
        return self.labels

    def groups(self, column: str) -> np.ndarray | None:
        """Numbers (n,), equal for examples that belong together, from `column` of a batch; None
        if examples are independent, or it is unknown."""
        return None

    def numbers_of(self, column: str) -> np.ndarray | None:
        """A number for each example, (n,), from `column` of a batch; None if it is unknown."""
        return self.labels if column == _LABELS else None

    @property
    def mean_tokens(self) -> float | None:
        """Mean length of an example; None of images."""
        return None

    def lengths_of(self, reads: Reading, column: str) -> Any:
        """Numbers (n,) by which examples of similar length are found; None where all are of one size.

        Args:
            reads: the type of the examples.
            column: the name of a column that holds them, if there is one.
        """
        return reads.lengths(self.rows)

    def add_to(self, digest: Any) -> None:
        """Add all that the examples depend on to a digest (`hashlib`)."""
        for row in self.rows:
            digest.update(repr(row).encode())


class _EncodedTable(RowFacts):
    """A `datasets.Dataset` of encoded rows."""

    rows: Dataset

    def _column(self, name: str) -> np.ndarray | None:
        """Numbers, one a row or as many in each."""
        kind = self.rows.features.get(name)
        of_one_size = isinstance(kind, List) and kind.length > 0
        if not (isinstance(kind, Value | ClassLabel) or of_one_size):
            return None
        return np.asarray(self.rows.with_format("numpy")[name][:])

    @cached_property
    def numbers(self) -> np.ndarray | None:
        return self._column(_INDEX)

    @cached_property
    def labels(self) -> np.ndarray | None:
        return self._column(_LABELS)

    @property
    def label_column(self) -> Any:
        return self.rows[_LABELS][:] if _LABELS in self.rows.column_names else None

    def groups(self, column: str) -> np.ndarray | None:
        found = self._column(column)
        return None if found is None or len(np.unique(found)) == len(found) else found

    def numbers_of(self, column: str) -> np.ndarray | None:
        return self._column(column)

    @property
    def mean_tokens(self) -> float | None:
        if _TOKENS not in self.rows.column_names:
            return None
        ids = self.rows.with_format("arrow")[:][_TOKENS]
        return float(pc.mean(pc.list_value_length(ids)).as_py())

    def lengths_of(self, reads: Reading, column: str) -> Any:
        if column in self.rows.column_names:
            return list(self.rows[column])
        return super().lengths_of(reads, column)

    def add_to(self, digest: Any) -> None:
        add_rows(digest, self.rows)


def facts_of(rows: Any) -> RowFacts:
    """Who knows about some rows: they themselves, or what reads their table."""
    if isinstance(rows, RowFacts):
        return rows
    return _EncodedTable(rows) if isinstance(rows, Dataset) else RowFacts(rows)
