"""What stored outputs are asked about rows whose examples are not the rows themselves. Part of `limbeck.tasks`."""

from __future__ import annotations

from typing import NamedTuple


class AskedTexts(NamedTuple):
    """Texts whose outputs teach the examples of some rows.

    Attributes:
        columns: the texts by column, as a teacher read them, each (n,).
        rows: the place of the row that each is of, (n,).
        examples: the place among the rows' examples that each teaches, (n,).
        of: how many examples the rows have. Nothing is known of those that are not among `examples`.
    """

    columns: list[list[str]]
    rows: list[int]
    examples: list[int]
    of: int
