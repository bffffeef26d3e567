"""Shards made by a pool of Ray Data's actors, on one machine or a cluster. Part of `limbeck.run`.

An actor labels a whole shard and writes it, exactly as one process does; only the manifest is the caller's. An actor
that dies is started again, and its shard is made again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from limbeck.errors import LimbeckError, Problem
from limbeck.run.label_plan import LabelPlan
from limbeck.run.ray_session import ray_session
from limbeck.run.teachers_named import LabellerSource
from limbeck.teachers.outputs import ShardRecord, StoreFiles
from limbeck.teachers.outputs.columns import OutputLayout
from limbeck.teachers.outputs.scored_shard import MadeShard, ShardRows, make_shard

_NUMBER, _IDS, _MADE, _WRONG = "number", "ids", "made", "wrong"
_TEXT = "text of "


def make_by_ray(
    files: StoreFiles,
    plan: LabelPlan,
    source: LabellerSource,
    parts: Iterable[ShardRows],
    workers: int | None,
    advance: Callable[[int], None],
) -> Iterator[MadeShard]:
    """Make shards in any order.

    Args:
        source: makes the labeller, in every actor once.
        workers: at most so many actors; by default one for each GPU, or for each CPU where there is none.
        advance: called with the rows of every shard that is there.

    Raises:
        LimbeckError: Ray is not installed, or what an actor said.
    """
    with ray_session() as ray:
        from ray import data as ray_data

        ray_data.DataContext.get_current().enable_progress_bars = False
        resources = ray.cluster_resources()
        gpus, cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
        made = ray_data.from_arrow([_as_table(part) for part in parts]).map_batches(
            _Maker,
            fn_constructor_kwargs={
                "url": files.url,
                "source": source,
                "outputs": plan.outputs,
                "batch_size": plan.batch_size,
                "text_names": plan.text_names,
            },
            batch_size=1,
            batch_format="pyarrow",
            compute=ray_data.ActorPoolStrategy(min_size=1, max_size=workers or gpus or cpus),
            num_cpus=1,
            num_gpus=1 if gpus else 0,
        )
        try:
            for row in made.iter_rows():
                shard = _made(row[_MADE])
                advance(shard.record.rows)
                yield shard
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise LimbeckError(
                f"engine ray: {reason[-1]}",
                "run the same command again, which continues it; --engine local needs no Ray",
            ) from error


class _Maker:
    """One actor: a labeller, asked about one shard after the other."""

    def __init__(
        self,
        url: str,
        source: LabellerSource,
        outputs: tuple[str, ...],
        batch_size: int,
        text_names: tuple[str, ...],
    ) -> None:
        self.files = StoreFiles(url)
        self.labeller = source.load()
        self.outputs = outputs
        self.batch_size = batch_size
        self.text_names = text_names

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Make the shards of a batch; returns what the caller's manifest has to know, or what is wrong."""
        found = [json.dumps(self._made(_as_rows(row))) for row in batch.to_pylist()]
        return pa.table({_MADE: pa.array(found, pa.string())})

    def _made(self, rows: ShardRows) -> dict[str, Any]:
        try:
            made = make_shard(
                self.files,
                self.labeller,
                rows,
                self.outputs,
                self.batch_size,
                text_names=self.text_names,
            )
        except LimbeckError as error:  # an exception's cause does not travel
            return {_WRONG: [[problem.message, problem.fix] for problem in error.problems]}
        return {
            "record": made.record.model_dump(mode="json"),
            "columns": made.layout.written(),
            "costs": dict(made.costs),
        }


def _as_table(part: ShardRows) -> pa.Table:
    """A shard's rows as one row, so that Ray hands them out together."""
    columns: dict[str, Any] = {_NUMBER: [part.number], _IDS: [part.ids.tolist()]}
    return pa.table(columns | {_TEXT + name: [[*texts]] for name, texts in part.texts.items()})


def _as_rows(row: dict[str, Any]) -> ShardRows:
    names = [name for name in row if name.startswith(_TEXT)]
    texts = {name.removeprefix(_TEXT): row[name] for name in names}
    return ShardRows(row[_NUMBER], np.array(row[_IDS], dtype=np.int64), texts)


def _made(content: str) -> MadeShard:
    found = json.loads(content)
    if _WRONG in found:
        raise LimbeckError([Problem(*problem) for problem in found[_WRONG]])
    record = ShardRecord.model_validate(found["record"])
    return MadeShard(record, OutputLayout.read(found["columns"]), found["costs"])
