"""Which rows are labelled, by whom, in which shards. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata

import numpy as np

from limbeck.data.text_rows import TextRows
from limbeck.outputs import RowsIdentity, StoreManifest, TeacherIdentity, TokensIdentity
from limbeck.outputs.key import digest_of_ids
from limbeck.outputs.manifest import has_one_label
from limbeck.outputs.scored_shard import ShardContent, ShardRows
from limbeck.outputs.shards import RESERVED
from limbeck.outputs.writer import DECIDING
from limbeck.support.errors import LimbeckError, unknown
from limbeck.teachers.labeller import HasLayers, KeepsTokens, Labeller

_LIBRARIES = ("limbeck", "torch", "transformers")


@dataclass(frozen=True)
class LabelPlan:
    """What `limbeck label` is to do.

    Attributes:
        rows: all rows that were read; rows of equal texts are labelled once.
        outputs: which of the labeller's are stored.
        batch_size: rows that it is given at once.
        with_text: whether the store holds the texts too.
        task: the known task's name, if one was named.
        drop_missing: whether shards are made without the rows that have no outputs.
    """

    rows: TextRows
    outputs: tuple[str, ...]
    batch_size: int
    with_text: bool
    task: str | None = None
    drop_missing: bool = False

    @cached_property
    def ids(self) -> np.ndarray:
        """Of the different rows, in the order in which they were read."""
        return self.rows.ids[self.rows.first]

    def __len__(self) -> int:
        return len(self.rows.first)

    def decides(self, kind: str) -> bool:
        """Whether outputs about rows of this task type come to a class or a number; else a store has no labels."""
        return has_one_label(kind) and any(name in DECIDING for name in self.outputs)

    @property
    def text_names(self) -> tuple[str, ...]:
        """What the text columns of the store are called; () where it holds none."""
        return self.rows.names if self.with_text else ()

    @property
    def content(self) -> ShardContent:
        """Of every shard."""
        return ShardContent(self.outputs, self.batch_size, self.text_names, self.drop_missing)

    def shards(self, shard_rows: int) -> range:
        """The numbers of the shards of so many rows."""
        return range(-(-len(self) // shard_rows))

    def part(self, number: int, shard_rows: int) -> ShardRows:
        """The rows of one shard: neighbours, whatever was labelled before."""
        window = slice(number * shard_rows, (number + 1) * shard_rows)
        return ShardRows(number, self.ids[window], self.rows.take(self.rows.first[window]))

    def manifest(self, labeller: Labeller, shard_rows: int) -> StoreManifest:
        """What the store is to be."""
        kept = labeller.kept_tokens if isinstance(labeller, KeepsTokens) else None
        return StoreManifest(
            complete=False,
            kind=labeller.kind,
            task=self.task,
            classes=labeller.classes,
            teacher=TeacherIdentity(
                name=labeller.name,
                fingerprint=labeller.fingerprint(),
                shape=labeller.shape if isinstance(labeller, HasLayers) else None,
            ),
            rows=RowsIdentity(
                count=len(self),
                fingerprint=digest_of_ids(self.ids),
                source=self.rows.source,
                columns=self.rows.names,
                target=kept is not None,
            ),
            # Not the size of batches: outputs follow from it by rounding alone, and whoever runs out of memory
            # continues with smaller ones.
            settings={"outputs": [*self.outputs], "rows of a shard": shard_rows},
            text=self.with_text,
            labelled=self.decides(labeller.kind),
            tokens=kept and TokensIdentity(kept=kept[0], vocabulary=kept[1]),
            made_with={name: metadata.version(name) for name in _LIBRARIES},
        )


def outputs_asked(
    labeller: Labeller, asked: Sequence[str] | None, texts: Sequence[str]
) -> tuple[str, ...]:
    """Which outputs are stored: those named, or all that a labeller gives.

    Args:
        texts: names of the text columns that stand beside them.

    Raises:
        LimbeckError: outputs that it does not give, or that have the name of another column.
    """
    known = labeller.outputs
    problems = [unknown("output", name, known) for name in asked or () if name not in known]
    if problems:
        raise LimbeckError(problems)
    chosen = tuple(dict.fromkeys(asked)) if asked else known
    if taken := RESERVED & {*chosen}:
        raise LimbeckError(
            f"the output {', '.join(taken)} has the name of a column of every store",
            "rename the labeller's output",
        )
    if clashing := {*texts} & {*chosen, *RESERVED}:
        raise LimbeckError(
            f"the text column {', '.join(sorted(clashing))} has the name of another column of the store",
            "rename it in your file, or leave --with-text out",
        )
    return chosen
