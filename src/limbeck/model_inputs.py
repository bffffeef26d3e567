"""Which inputs a model is given: those that its own tokenizer makes, though another's made the batch.

They stand between the batch, which the student's tokenizer made, and a teacher. Where both make the
same token ids, what else a teacher's tokenizer makes (segment ids) travels with the rows in columns of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from datasets import Dataset
from torch import Tensor

from limbeck.support.errors import LimbeckError

TEACHER_COLUMN = "teacher_"
"""What the names of columns begin with that no student reads."""


@dataclass(frozen=True)
class ModelInputs:
    """How a model's inputs are found in a batch that another model's tokenizer made.

    Attributes:
        own: by name of an input, the column that holds it.
        absent: inputs of the other model that this one's tokenizer does not make: it is not given them.
    """

    own: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()

    def of(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The batch as the model reads it.

        Raises:
            LimbeckError: the batch lacks a column of the model's own.
        """
        lost = sorted(set(self.own.values()) - batch.keys())
        if lost:
            raise LimbeckError(
                f"the batch has no {' and no '.join(lost)}, which the teacher reads",
                "train on the rows that the teacher's inputs were added to",
            )
        kept = {name: value for name, value in batch.items() if name not in self.absent}
        return kept | {name: batch[column] for name, column in self.own.items()}

    def of_rows(self, rows: Dataset) -> Dataset:
        """Encoded rows with nothing in them that only other models read."""
        others = [
            name
            for name in rows.column_names
            if name in self.absent or name in self.own or name.startswith(TEACHER_COLUMN)
        ]
        kept = rows.remove_columns([name for name in others if name not in self.own.values()])
        return kept.rename_columns({column: name for name, column in self.own.items()})
