"""What a store keeps of a text-to-text teacher's logits, for terms that look at as much.

Part of `limbeck.teachers.outputs`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from limbeck.functional.partial_logits import KeptTokens
from limbeck.teachers.outputs.columns import IDS, REST, VALUES
from limbeck.teachers.outputs.mapped_outputs import MappedOutputs
from limbeck.teachers.outputs.output_store import OutputStore
from limbeck.teachers.outputs.training_entry import training_entry

STACKS = ("main", "decoder")
"""Of a text-to-text model."""


@dataclass(frozen=True)
class StoredTokens:
    """Tokens of a vocabulary at every token of each row's target.

    Attributes:
        store: where they lie.
        kept: by which rule.
        limit: bytes that all entries of the local cache together may take.
    """

    store: OutputStore
    kept: KeptTokens
    limit: int

    def of_rows(self, ids: np.ndarray) -> MappedOutputs:
        """Mapped into memory for some rows: example i is the row `ids[i]`.

        Raises:
            LimbeckError: as `training_entry`.
        """
        columns = (IDS, VALUES, REST)
        return MappedOutputs(training_entry(self.store, ids, columns=columns, limit=self.limit))
