"""Who makes a store's shards: this process, or others. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from limbeck.outputs import StoreFiles
from limbeck.outputs.scored_shard import MadeShard, ShardContent, ShardRows, costs_of, make_shard
from limbeck.run.missing_rows import MissingRows
from limbeck.teachers.labeller import Labeller


class ShardMakers(Protocol):
    """Whoever makes shards."""

    @property
    def workers(self) -> int:
        """How many shards are made at a time."""

    def made(
        self,
        parts: Iterable[ShardRows],
        advance: Callable[[int], None],
        missing: MissingRows,
    ) -> Iterator[MadeShard]:
        """Make shards, in any order.

        Args:
            parts: their rows.
            advance: called with the number of rows that were labelled since the last call.
            missing: told of rows without outputs, whose shards are left out.

        Raises:
            LimbeckError: what is wrong with the labeller's outputs, or with who is to make them.
        """

    def costs(self) -> dict[str, float]:
        """What the labeller, here and elsewhere, has counted so far; of shards that were left out too."""


class LocalMaker:
    """This process, one shard after the other.

    Args:
        files: the store's place.
        content: of every shard.
        labeller: the teacher.
    """

    workers = 1

    def __init__(self, files: StoreFiles, content: ShardContent, labeller: Labeller) -> None:
        self.files, self.content, self.labeller = files, content, labeller

    def made(
        self,
        parts: Iterable[ShardRows],
        advance: Callable[[int], None],
        missing: MissingRows,
    ) -> Iterator[MadeShard]:
        """As `ShardMakers.made`, in order."""
        for part in parts:
            with missing.of(part):
                yield make_shard(self.files, self.labeller, part, self.content, advance)

    def costs(self) -> dict[str, float]:
        """What the labeller has counted."""
        return costs_of(self.labeller)
