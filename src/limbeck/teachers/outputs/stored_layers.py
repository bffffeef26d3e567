"""Layers of a teacher in a store, for terms that compare them without the teacher.

Part of `limbeck.teachers.outputs`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from limbeck.activations import ActivationKey, Request
from limbeck.objectives import ModelShape
from limbeck.teachers.outputs.columns import OutputColumn
from limbeck.teachers.outputs.mapped_outputs import MappedOutputs
from limbeck.teachers.outputs.output_store import OutputStore
from limbeck.teachers.outputs.training_entry import training_entry

FLOAT32 = "float32"


def by_layer(seen: Iterable[ActivationKey]) -> list[ActivationKey]:
    """By what they are, then by layer."""
    return sorted(seen, key=lambda one: (one.what, one.stack, one.layer, one.pool or ""))


@dataclass(frozen=True)
class StoredLayers:
    """What a store holds of one teacher's layers.

    Attributes:
        store: where they lie.
        shape: of the teacher.
        limit: bytes that all entries of the local cache together may take.
    """

    store: OutputStore
    shape: ModelShape
    limit: int
    columns: dict[ActivationKey, OutputColumn] = field(default_factory=dict)
    """By what they are."""

    @classmethod
    def of(cls, store: OutputStore, limit: int) -> StoredLayers | None:
        """Those of a store; None of one whose teacher has none, or does not say its shape."""
        shape = store.manifest.teacher.shape
        if shape is None:
            return None
        columns = {column.seen: column for column in store.own_columns if column.seen is not None}
        return cls(store, ModelShape.read(shape), limit, columns)

    def absent(self, wanted: Request) -> list[ActivationKey]:
        """What of a request is not there, in order."""
        return by_layer(seen for seen in wanted.items if seen not in self.columns)

    def coarse(self, exact: Request) -> list[ActivationKey]:
        """What is stored in float16 and has to be in float32, in order."""
        there = (seen for seen in exact.items if seen in self.columns)
        return by_layer(seen for seen in there if self.columns[seen].dtype != FLOAT32)

    @property
    def made_for(self) -> tuple[str | None, int | None]:
        """The digest of the tokenizer and the length limit by which token states were made, as far as is known."""
        about = self.store.manifest.teacher.fingerprint
        tokenizer, length = about.get("tokenizer"), about.get("max_length")
        return (
            tokenizer if isinstance(tokenizer, str) else None,
            length if isinstance(length, int) else None,
        )

    def of_rows(self, ids: np.ndarray) -> MappedOutputs:
        """Mapped into memory for some rows: example i is the row `ids[i]`.

        Raises:
            LimbeckError: as `training_entry`.
        """
        names = [column.name for column in self.columns.values()]
        return MappedOutputs(training_entry(self.store, ids, columns=names, limit=self.limit))
