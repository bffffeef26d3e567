"""What labelling takes, told before it begins, from one measured batch. Part of `limbeck.run`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from limbeck.data.column import taken
from limbeck.run.label_plan import LabelPlan
from limbeck.teachers.labelling import CountsCosts, Labeller, RowsMissingError
from limbeck.teachers.outputs.parquet_shards import rows_of_shard
from limbeck.teachers.outputs.scored_shard import costs_of, score_rows

# The first call of a model also warms it up.
_WARM_SECONDS = 2.0
# Rows whose lengths are looked at for the mean; of millions their texts would be copied.
_SAMPLE = 16_384


@dataclass(frozen=True)
class LabelEstimate:
    """Of one row: bytes before compression, seconds, and what a labeller counts."""

    bytes: float
    seconds: float
    costs: Mapping[str, float]

    @property
    def shard_rows(self) -> int:
        """How many rows make a shard of a size that is easily held and soon made: a power of two."""
        return rows_of_shard(self.bytes)


def measure_labelling(labeller: Labeller, plan: LabelPlan) -> LabelEstimate:
    """Label one batch of rows of about the mean length, and throw the outputs away.

    The mean is that of a sample drawn evenly from all rows.

    Raises:
        LimbeckError: what is wrong with the labeller's outputs.
    """
    batch = _mean_batch(plan)
    texts = {name: column.to_pylist() for name, column in batch.items()}
    before = costs_of(labeller)
    try:
        seconds, values = _timed(labeller, plan, texts)
    except RowsMissingError as error:  # said when all rows are labelled
        count = len(next(iter(texts.values())))
        if len(error.reasons) == count:
            raise
        left = np.delete(np.arange(count), [*error.reasons])
        texts = {name: [column[at] for at in left] for name, column in texts.items()}
        seconds, values = _timed(labeller, plan, texts)
    spent = {name: now - before.get(name, 0.0) for name, now in costs_of(labeller).items()}
    if seconds < _WARM_SECONDS and not isinstance(labeller, CountsCosts):
        seconds, values = _timed(labeller, plan, texts)
    count = len(next(iter(texts.values())))
    size = sum(_bytes(value) for value in values.values()) / count
    if plan.with_text:
        size += sum(len(text.encode()) for column in texts.values() for text in column) / count
    costs = {name: total / count for name, total in spent.items()}
    return LabelEstimate(size + 16, seconds / count, costs)  # row id and label


def _mean_batch(plan: LabelPlan) -> dict[str, pa.ChunkedArray]:
    """The text columns of one batch."""
    count = min(len(plan), max(_SAMPLE, plan.batch_size))
    places = plan.rows.first[np.arange(count) * len(plan) // count]
    sample = {name: taken(column, places) for name, column in plan.rows.columns.items()}
    lengths = np.sum([pc.utf8_length(column).to_numpy() for column in sample.values()], axis=0)
    near = np.argsort(np.abs(lengths - lengths.mean()), kind="stable")[: plan.batch_size]
    return {name: column.take(pa.array(near)) for name, column in sample.items()}


def _timed(labeller: Labeller, plan: LabelPlan, texts: dict) -> tuple[float, dict]:
    began = time.perf_counter()
    scored = score_rows(labeller, texts, plan.outputs, plan.batch_size)
    return time.perf_counter() - began, scored.values


def _bytes(value: np.ndarray) -> int:
    return sum(part.nbytes for part in value) if value.dtype == object else value.nbytes
