"""Rows too many to encode before the first step: each batch is encoded when it is asked for. Part of `limbeck.data`.

The rows themselves lie in mapped files. What a sampler and pre-flight want to know of all of them comes from the rows:
labels, numbers, and lengths in bytes of text, which put batches of similar length together as tokens would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset

from limbeck.data.encoding import encode
from limbeck.data.row_facts import RowFacts
from limbeck.tasks import TEXT_READING, Processor, Reading, TaskType
from limbeck.tasks.rules import CUT
from limbeck.tasks.task import Task

AT_ONCE = 1_000_000
"""Rows that are encoded before the first step; of more, each batch is when its turn comes."""
_SAMPLE = 2048
_FEW = 8


def may_wait(kind: TaskType) -> bool:
    """Whether rows of a task type can be encoded batch by batch: a text is one example, the same in every epoch."""
    alike = kind.constant and not kind.resampled
    return kind.reads is TEXT_READING and alike and kind.one_example_a_row


class LazyRows(torch.utils.data.Dataset, RowFacts):
    """Loaded rows that look encoded.

    Args:
        raw: as they were loaded.
        task: whose rows they are.
        tokenizer: makes a model's input of them.
        max_length: the longest, in tokens.
        places: which of the rows, in this order; all of them by default.

    Raises:
        LimbeckError: as `encode`, which is tried on the first few.
    """

    def __init__(
        self,
        raw: Dataset,
        task: Task,
        tokenizer: Processor,
        max_length: int,
        places: np.ndarray | None = None,
    ) -> None:
        self.raw, self.task, self.tokenizer, self.max_length = raw, task, tokenizer, max_length
        self.places = places
        few, _ = encode(raw.select(range(min(_FEW, len(raw)))), task, tokenizer, max_length)
        self.column_names = few.column_names

    @property
    def encoded(self) -> bool:
        """No: each batch is in its turn."""
        return False

    def __len__(self) -> int:
        return len(self.raw if self.places is None else self.places)

    def __getitem__(self, place: int) -> dict[str, Any]:
        if not -len(self) <= place < len(self):
            raise IndexError(place)
        return self.__getitems__([int(place) % len(self)])[0]

    def __getitems__(self, places: Sequence[int]) -> list[dict[str, Any]]:
        """Examples at some places, as a DataLoader asks for those of a batch."""
        chosen = places if self.places is None else self.places[np.asarray(places)].tolist()
        rows = self.raw[list(chosen)]
        found = dict(self.task.kind.encode(self.task, self.tokenizer, self.max_length, rows))
        found.pop(CUT)
        return [
            dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)
        ]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[place] for place in range(len(self)))

    def select(self, places: Sequence[int] | np.ndarray) -> LazyRows:
        """Some of the rows."""
        chosen = np.asarray(places, dtype=np.int64)
        chosen = chosen if self.places is None else self.places[chosen]
        return LazyRows(self.raw, self.task, self.tokenizer, self.max_length, chosen)

    def _column(self, name: str) -> np.ndarray:
        values = self.raw.with_format("numpy")[name][:]
        return values if self.places is None else values[self.places]

    @cached_property
    def labels(self) -> np.ndarray:
        """Class ids or numbers (n,)."""
        return self._column(self.task.label_column)

    @property
    def numbers(self) -> np.ndarray:
        """What each example's `index` is, (n,)."""
        return self._column("index")

    def groups(self, column: str) -> np.ndarray | None:
        """By the texts of the rows."""
        names = [name for name in self.task.text_columns if name in self.raw.column_names]
        found = self.task.kind.groups_of(self.task, {name: self.raw[name][:] for name in names})
        return found if found is None or self.places is None else found[self.places]

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of text of each example, (n,)."""
        table: pa.Table = self.raw.with_format("arrow")[:]
        total = np.zeros(len(self.raw), dtype=np.int32)
        for name in self.task.text_columns:
            start = 0
            for chunk in table.column(name).chunks:
                total[start : start + len(chunk)] += pc.binary_length(chunk).to_numpy(False)
                start += len(chunk)
        return total if self.places is None else total[self.places]

    def lengths_of(self, reads: Reading, column: str) -> np.ndarray:
        """Bytes of text: nobody has counted the tokens."""
        return self.lengths

    @cached_property
    def mean_tokens(self) -> float:
        """Mean length of an example, by a sample of them spread over all."""
        step = max(len(self) // _SAMPLE, 1)
        some = self.__getitems__(list(range(0, len(self), step)))
        return float(np.mean([len(row["input_ids"]) for row in some]))

    def add_to(self, digest: Any) -> None:
        """Add all that the examples depend on to a digest (`hashlib`)."""
        table: pa.Table = self.raw.with_format("arrow")[:]
        about = [str(table.schema), TEXT_READING.describe(self.tokenizer), str(self.max_length)]
        digest.update("\n".join(about).encode())
        for batch in table.to_batches():
            digest.update(batch.serialize())
        if self.places is not None:
            digest.update(self.places.tobytes())
