"""Which rows somebody names, as one value. Part of `limbeck.data`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RowsAsked:
    """The rows that are named; what is None is left to the run, the export or the model that is asked about them.

    Attributes:
        task: their task.
        data: their source.
        split: which of its splits.
        text_columns: of a file of the user's own, the columns that hold text.
        label_column: likewise, the one that holds the labels.
        max_length: tokens that a text is cut to.
    """

    task: str | None = None
    data: str | None = None
    split: str | None = None
    text_columns: Sequence[str] | None = None
    label_column: str | None = None
    max_length: int | None = None

    def are_those_of(self, task: str | None) -> bool:
        """Whether nothing but the split and the length is named, or the task that they have anyway."""
        others = self.data is not None or self.text_columns or self.label_column
        return self.task in (None, task) and not others


NOTHING_NAMED = RowsAsked()
"""The rows that whatever is asked about them has by itself."""
