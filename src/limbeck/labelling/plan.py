"""Which rows are labelled, by whom, in which shards. Part of `limbeck.labelling`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from limbeck.data.table import taken
from limbeck.data.text_rows import TextRows
from limbeck.labelling.label_failures import none_has_outputs
from limbeck.outputs import RowsIdentity, StoreManifest, TeacherIdentity, TokensIdentity
from limbeck.outputs.key import digest_of_ids
from limbeck.outputs.manifest import has_one_label
from limbeck.outputs.scored_shard import (
    ShardContent,
    ShardRows,
    Texts,
    costs_of,
    rows_in,
    score_answered,
    score_rows,
    texts_at,
)
from limbeck.outputs.shards import DECIDING, RESERVED, rows_of_shard
from limbeck.support.errors import LimbeckError, unknown
from limbeck.teachers.labeller import HasLayers, KeepsTokens, Labeller, RowsMissingError

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


# What labelling takes, told before it begins, from one measured batch.


# The first call of a model also warms it up.
_WARM_SECONDS = 2.0
# Rows whose lengths are looked at for the mean; of millions their texts would be copied.
_SAMPLE = 16_384
# Where rows without outputs are left out: after so many of which none has any, the teacher is taken to give none.
_TRIED_ROWS = 256
# What a shard's file holds of each column beside its rows: its schema, written twice, and where its pages lie.
_COLUMN_BYTES = 512
# Of a row's id: few classes, and where rows of many lengths end, take some bits when they are compressed.
_ID = 8


@dataclass(frozen=True)
class LabelEstimate:
    """Of one row: bytes before compression, seconds, and what a labeller counts.

    Attributes:
        bytes, seconds, costs: of one row.
        file_bytes: of a shard, beside its rows.
        kept_seconds: those of the whole measured batch, if its answers are kept and none is asked for again.
    """

    bytes: float
    seconds: float
    costs: Mapping[str, float]
    file_bytes: float = 0.0
    kept_seconds: float = 0.0

    @property
    def shard_rows(self) -> int:
        """How many rows make a shard of a size that is easily held and soon made: a power of two."""
        return rows_of_shard(self.bytes)

    def size(self, rows: int, shards: int) -> float:
        """Bytes of so many rows in so many files."""
        return self.bytes * rows + self.file_bytes * shards


@dataclass(frozen=True)
class _Attempt:
    """A measured batch: what it took for all of its `rows`, and the texts of those that have outputs, with these."""

    rows: int
    seconds: float
    costs: Mapping[str, float]
    texts: Texts
    values: Mapping[str, np.ndarray]


def measure_labelling(labeller: Labeller, plan: LabelPlan) -> LabelEstimate:
    """Label one batch of rows of about the mean length, and throw the outputs away.

    The mean is that of a sample drawn evenly from all rows. Where rows without outputs are left out, a batch of
    nothing else is followed by another.

    Raises:
        LimbeckError: what is wrong with the labeller's outputs, or that no row has any.
    """
    tried = _first_with_outputs(labeller, plan)
    count, left = tried.rows, rows_in(tried.texts)
    # Whoever counts what it spends keeps its answers, so that none is paid for twice; again it would only look fast.
    seconds, kept = tried.seconds / count, bool(tried.costs)
    if tried.seconds < _WARM_SECONDS and not kept:
        began = time.perf_counter()
        _scored(labeller, plan, tried.texts)
        seconds = (time.perf_counter() - began) / left
    labels = plan.decides(labeller.kind)
    return LabelEstimate(
        bytes=_row_bytes(plan, tried) / left + _ID,
        seconds=seconds,
        costs={name: total / count for name, total in tried.costs.items()},
        file_bytes=_COLUMN_BYTES * (1 + labels + len(plan.outputs) + len(plan.text_names)),
        kept_seconds=tried.seconds if kept else 0.0,
    )


def _first_with_outputs(labeller: Labeller, plan: LabelPlan) -> _Attempt:
    """The first batch of which a row has outputs; where rows without them are an error, the first batch.

    Raises:
        LimbeckError: no row has outputs.
    """
    reasons: list[str] = []
    for texts in _mean_batches(plan):
        try:
            return _attempt(labeller, plan, texts)
        except RowsMissingError as error:
            if not plan.drop_missing:
                raise
            reasons += error.reasons.values()
    raise none_has_outputs(f"{len(reasons):,} rows that were tried", reasons)


def _attempt(labeller: Labeller, plan: LabelPlan, texts: Texts) -> _Attempt:
    """Label a batch once; rows without outputs, which are said when all rows are labelled, take time and money too.

    Raises:
        RowsMissingError: no row has outputs.
    """
    before, began = costs_of(labeller), time.perf_counter()
    values: dict[str, np.ndarray] = {}
    lacking: Mapping[int, str] = {}
    try:
        values = _scored(labeller, plan, texts)
    except RowsMissingError as error:
        if len(error.reasons) == rows_in(texts):
            raise
        lacking = error.reasons
    seconds, count = time.perf_counter() - began, rows_in(texts)
    spent = {name: now - before.get(name, 0.0) for name, now in costs_of(labeller).items()}
    if lacking:
        # Not measured: whoever raises it has kept the outputs of the others, which costs nothing now.
        size = plan.batch_size
        found = score_answered(labeller, texts, plan.outputs, size, lacking=lacking)
        texts = texts_at(texts, [at for at in range(count) if at not in found.reasons])
        values = found.scores.values
    return _Attempt(count, seconds, spent, texts, values)


def _mean_batches(plan: LabelPlan) -> Iterator[dict[str, list[str]]]:
    """The texts of some batches by column, those nearest to the mean length first."""
    count = min(len(plan), max(_SAMPLE, plan.batch_size))
    places = plan.rows.first[np.arange(count) * len(plan) // count]
    sample = {name: taken(column, places) for name, column in plan.rows.columns.items()}
    lengths = np.sum([pc.utf8_length(column).to_numpy() for column in sample.values()], axis=0)
    near = np.argsort(np.abs(lengths - lengths.mean()), kind="stable")
    for start in range(0, min(count, max(_TRIED_ROWS, plan.batch_size)), plan.batch_size):
        batch = pa.array(near[start : start + plan.batch_size])
        yield {name: column.take(batch).to_pylist() for name, column in sample.items()}


def _scored(labeller: Labeller, plan: LabelPlan, texts: Texts) -> dict[str, np.ndarray]:
    return score_rows(labeller, texts, plan.outputs, plan.batch_size).values


def _row_bytes(plan: LabelPlan, made: _Attempt) -> int:
    """Of all rows of a batch together."""
    size = sum(_bytes(value) for value in made.values.values())
    if plan.with_text:
        size += sum(len(text.encode()) for column in made.texts.values() for text in column)
    return size


def _bytes(value: np.ndarray) -> int:
    return sum(part.nbytes for part in value) if value.dtype == object else value.nbytes
