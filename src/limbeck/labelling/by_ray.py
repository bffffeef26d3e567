"""Shards made by a pool of Ray Data's actors, on one machine or a cluster. Part of `limbeck.labelling`.

An actor labels a whole shard and writes it, exactly as one process does; only the manifest is the caller's. An actor
that dies is started again, and its shard is made again.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from limbeck.labelling.missing_rows import MissingRows
from limbeck.labelling.teachers_named import LabellerSource
from limbeck.outputs import ShardRecord, StoreFiles
from limbeck.outputs.columns import OutputLayout
from limbeck.outputs.scored_shard import MadeShard, ShardContent, ShardRows, costs_of, make_shard
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home
from limbeck.teachers.labeller import Labeller, RowsMissingError

_NUMBER, _IDS, _MADE = "number", "ids", "made"
# Of a report.
_COSTS, _MISSING, _WRONG = "costs", "missing", "wrong"
_TEXT = "text of "


def found_anywhere(teachers: Sequence[str | Labeller]) -> tuple[str | Labeller, ...]:
    """The teachers, those of this machine's folders by their whole paths: an actor may work in another folder."""
    return tuple(
        str(at_home(one).absolute()) if isinstance(one, str) and at_home(one).exists() else one
        for one in teachers
    )


class RayMakers:
    """A pool of actors, one for each GPU, or for each CPU where there is none.

    Args:
        ray: the module, connected.
        files: the store's place, which every actor reaches, whatever folder it works in.
        content: of every shard.
        labeller: the caller's own, which has labelled the measured batch.
        source: makes the labeller, in every actor once.
        most: at most so many actors.
    """

    def __init__(
        self,
        ray: Any,
        files: StoreFiles,
        content: ShardContent,
        labeller: Labeller,
        source: LabellerSource,
        most: int | None,
    ) -> None:
        self.ray, self.files, self.content = ray, files, content
        self.labeller, self.source = labeller, source
        resources = ray.cluster_resources()
        self._gpus = int(resources.get("GPU", 0))
        room = self._gpus or int(resources.get("CPU", 1))
        self._most = most or room
        self.workers = max(1, min(self._most, room))
        self._spent: Counter[str] = Counter()

    def made(
        self,
        parts: Iterable[ShardRows],
        advance: Callable[[int], None],
        missing: MissingRows,
    ) -> Iterator[MadeShard]:
        """As `ShardMakers.made`.

        Raises:
            LimbeckError: what an actor said, or Ray.
        """
        try:
            for row in self._labelled(parts).iter_rows():
                report = json.loads(row[_MADE])
                self._spent.update(report.get(_COSTS, {}))
                with missing.of(_missing_rows(report)):
                    shard = _made(report)
                    advance(shard.record.rows)
                    yield shard
        except self.ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise LimbeckError(
                f"engine ray: {reason[-1]}",
                "run the same command again, which continues it; --engine local needs no Ray",
            ) from error

    def costs(self) -> dict[str, float]:
        """Of the caller's own labeller, and of all actors'."""
        return dict(self._spent + Counter(costs_of(self.labeller)))

    def _labelled(self, parts: Iterable[ShardRows]) -> Any:
        """What actors report, a row for each shard."""
        from ray import data as ray_data

        ray_data.DataContext.get_current().enable_progress_bars = False
        # One after the other: they wait in Ray's store, which moves to disk what its memory does not hold.
        waiting = [self.ray.put(_as_table(part)) for part in parts]
        return ray_data.from_arrow_refs(waiting).map_batches(
            _Maker,
            fn_constructor_kwargs={
                "url": str(self.files.folder or self.files.url),
                "source": self.source,
                "content": self.content,
            },
            batch_size=1,
            batch_format="pyarrow",
            compute=ray_data.ActorPoolStrategy(min_size=1, max_size=self._most),
            num_cpus=1,
            num_gpus=1 if self._gpus else 0,
        )


class _Maker:
    """One actor: a labeller, asked about one shard after the other."""

    def __init__(self, url: str, source: LabellerSource, content: ShardContent) -> None:
        self.files = StoreFiles(url)
        self.labeller = source.load()
        self.content = content

    def __call__(self, batch: pa.Table) -> pa.Table:
        """Make the shards of a batch; returns what the caller's manifest has to know, or what is wrong."""
        found = [json.dumps(self._made(_as_rows(row))) for row in batch.to_pylist()]
        return pa.table({_MADE: pa.array(found, pa.string())})

    def _made(self, rows: ShardRows) -> dict[str, Any]:
        before = Counter(costs_of(self.labeller))
        try:
            made = make_shard(self.files, self.labeller, rows, self.content)
        except RowsMissingError as error:
            # The caller is told of them, and goes on with other shards.
            missing = [[int(rows.ids[at]), reason] for at, reason in error.reasons.items()]
            return {_MISSING: missing, _COSTS: Counter(costs_of(self.labeller)) - before}
        except LimbeckError as error:  # an exception's cause does not travel
            return {_WRONG: [[problem.message, problem.fix] for problem in error.problems]}
        return {
            "record": made.record.model_dump(mode="json"),
            "columns": made.layout.written(),
            _COSTS: dict(made.costs),
        }


def _as_table(part: ShardRows) -> pa.Table:
    """A shard's rows as one row, so that Ray hands them out together."""
    columns: dict[str, Any] = {_NUMBER: [part.number], _IDS: [part.ids.tolist()]}
    return pa.table(columns | {_TEXT + name: [[*texts]] for name, texts in part.texts.items()})


def _as_rows(row: dict[str, Any]) -> ShardRows:
    names = [name for name in row if name.startswith(_TEXT)]
    texts = {name.removeprefix(_TEXT): row[name] for name in names}
    return ShardRows(row[_NUMBER], np.array(row[_IDS], dtype=np.int64), texts)


def _missing_rows(report: dict[str, Any]) -> ShardRows:
    """Those rows of a shard that have no outputs, in the order in which the report has them."""
    ids = [row for row, _ in report.get(_MISSING, ())]
    return ShardRows(-1, np.array(ids, dtype=np.int64), {})


def _made(report: dict[str, Any]) -> MadeShard:
    """What an actor made.

    Raises:
        RowsMissingError: nothing, of rows without outputs, by their places in `_missing_rows`.
        LimbeckError: what an actor said is wrong.
    """
    if _MISSING in report:
        raise RowsMissingError(dict(enumerate(reason for _, reason in report[_MISSING])))
    if _WRONG in report:
        raise LimbeckError([Problem(*problem) for problem in report[_WRONG]])
    record = ShardRecord.model_validate(report["record"])
    return MadeShard(record, OutputLayout.read(report["columns"]), report[_COSTS])


# Ray, connected to a cluster or started on this machine for as long as it is needed.


@contextmanager
def ray_session(address: str | None = None) -> Iterator[Any]:
    """The module `ray`, connected, and stopped at the end if it was not connected before.

    `address`: a cluster's; by default the one that `RAY_ADDRESS` names, else one started on this machine.

    Raises:
        LimbeckError: Ray is not installed, or there is no such cluster.
    """
    ray = imported_ray()
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(
                address=address,
                include_dashboard=None if address else False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise LimbeckError(f"engine ray: {reason}", _fix(address)) from error
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def imported_ray() -> Any:
    """The module. Raises LimbeckError where it is not installed."""
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise LimbeckError(
            f"engine ray: {error}", "pip install 'limbeck[ray]', or leave --engine out"
        ) from None
    return ray


def _fix(address: str | None) -> str:
    """For a cluster that does not answer: where its name was read."""
    if address is not None:
        return f"{address}: name a cluster that runs, HOST:PORT, or none"
    if named := os.environ.get("RAY_ADDRESS"):
        return f"RAY_ADDRESS is {named}: name a cluster that runs, HOST:PORT, or unset it"
    return "look for what else of Ray runs on this machine (ray status), or leave --engine out"
