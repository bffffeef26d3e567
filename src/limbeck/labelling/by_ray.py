"""Shards made by a pool of Ray's actors, on one machine or a cluster. Part of `limbeck.labelling`.

An actor labels a whole shard and writes it, exactly as one process does; only the manifest is the caller's. An actor
that dies is started again, and its shard is made again.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from limbeck.labelling.fill import LabelWork, Reasons, ShardMaker, made_or_reasons
from limbeck.labelling.teachers import LabellerSource
from limbeck.outputs import StoreFiles
from limbeck.outputs.scored_shard import MadeShard, ShardContent, ShardRows
from limbeck.support.errors import LimbeckError, Problem
from limbeck.support.files import at_home
from limbeck.teachers.labeller import Labeller, costs_of

_TRIES = 3
"""Of a shard whose actor dies."""


def found_anywhere(teachers: Sequence[str | Labeller]) -> tuple[str | Labeller, ...]:
    """The teachers, those of this machine's folders by their whole paths: an actor may work in another folder."""
    return tuple(
        str(at_home(one).absolute()) if isinstance(one, str) and at_home(one).exists() else one
        for one in teachers
    )


class RayMaker(ShardMaker):
    """A pool of actors, one for each GPU, or for each CPU where there is none, but no more than are asked for.

    Args:
        ray: the module, connected.
        work: what is labelled; its own labeller has labelled the measured batch, each actor makes another.
    """

    def __init__(self, ray: Any, work: LabelWork) -> None:
        super().__init__(work)
        self.ray = ray
        resources = ray.cluster_resources()
        self._gpus = int(resources.get("GPU", 0))
        room = max(1, self._gpus or int(resources.get("CPU", 1)))
        self.workers = min(work.workers or room, room)
        self._spent: Counter[str] = Counter()

    def made(
        self, parts: Iterable[ShardRows], advance: Callable[[int], None]
    ) -> Iterator[tuple[ShardRows, MadeShard | Reasons]]:
        """As `ShardMaker.made`.

        Raises:
            LimbeckError: what an actor said, or Ray.
        """
        try:
            for part, made, costs in self._labelled(parts):
                if isinstance(made, list):
                    raise LimbeckError(made)
                self._spent.update(costs)
                advance(made.record.rows if isinstance(made, MadeShard) else 0)
                yield part, made
        except self.ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise LimbeckError(
                f"engine ray: {reason[-1]}",
                "run the same command again, which continues it; --engine local needs no Ray",
            ) from error

    def costs(self) -> dict[str, float]:
        """Of the caller's own labeller, and of all actors'."""
        return dict(self._spent + Counter(super().costs()))

    def _labelled(self, parts: Iterable[ShardRows]) -> Iterator[tuple[ShardRows, Any, Any]]:
        """What actors return of each shard; no more shards' rows wait than are made."""
        from ray.util import ActorPool

        files = self.work.files
        actor = self.ray.remote(_Maker).options(
            num_cpus=1,
            num_gpus=1 if self._gpus else 0,
            max_restarts=-1,
            max_task_retries=_TRIES,
        )
        # Every actor reaches the store's place, whatever folder it works in.
        given = (str(files.folder or files.url), self.work.source, self.work.content)
        pool = ActorPool([actor.remote(*given) for _ in range(self.workers)])
        for part in parts:
            if not pool.has_free():
                yield pool.get_next_unordered()
            pool.submit(lambda one, rows: one.make.remote(rows), part)
        while pool.has_next():
            yield pool.get_next_unordered()


class _Maker:
    """One actor: a labeller, asked about one shard after the other."""

    def __init__(self, url: str, source: LabellerSource, content: ShardContent) -> None:
        self.files, self.content = StoreFiles(url), content
        self.labeller = source.load()

    def make(
        self, part: ShardRows
    ) -> tuple[ShardRows, MadeShard | Reasons | list[Problem], Mapping[str, float]]:
        """Make a shard, or say what is wrong; and what it cost."""
        before = Counter(costs_of(self.labeller))
        made: MadeShard | Reasons | list[Problem]
        try:
            made = made_or_reasons(self.files, self.labeller, part, self.content)
        except LimbeckError as error:  # an exception's cause does not travel
            made = error.problems
        spent = Counter(costs_of(self.labeller)) - before
        return part, made, made.costs if isinstance(made, MadeShard) else spent


@contextmanager
def ray_maker(work: LabelWork) -> Iterator[ShardMaker]:
    """A pool, for as long as the block runs."""
    with ray_session() as ray:
        yield RayMaker(ray, work)


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
