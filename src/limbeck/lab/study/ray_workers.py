"""A study's runs as tasks of a Ray cluster, on this machine or others that see the same folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, final

from limbeck.lab.study.run_workers import RunMaker
from limbeck.lab.study.shared_runs import Outcome, SharedRuns, StudyRun
from limbeck.support.errors import LimbeckError, Problem

_TIMES_MORE = 3
"""How often a run is begun again whose process died; it goes on from its last checkpoint."""


@final
class OnRay(RunMaker):
    """So many runs at a time, each with an equal part of the cluster's CPUs and GPUs.

    A run whose process died, with its machine or without, is begun again on another.
    """

    def __init__(self, runs: SharedRuns, jobs: int, address: str | None = None) -> None:
        """Raises LimbeckError where Ray is not installed, or no cluster answers."""
        self.runs, self._jobs = runs, jobs
        self._stack = ExitStack()
        self._ray = self._stack.enter_context(ray_session(address))
        resources = self._ray.cluster_resources()
        cpus, gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
        each = max(1, cpus // jobs)
        self._task = self._ray.remote(_make).options(
            num_cpus=each, num_gpus=min(1, gpus / jobs), max_retries=_TIMES_MORE
        )
        self._threads = each
        self._at_work: dict[Any, StudyRun] = {}

    @property
    def free(self) -> int:
        """How many more may be begun."""
        return self._jobs - len(self._at_work)

    def start(self, run: StudyRun) -> None:
        """Hand it to the cluster."""
        said = (str(self.runs.path.absolute()), self.runs.keep_students, self._threads, run)
        self._at_work[self._task.remote(*said)] = run

    def finished(self) -> list[tuple[StudyRun, Outcome]]:
        """What has ended by now, at least one."""
        if not self._at_work:
            return []
        done, _ = self._ray.wait(list(self._at_work), num_returns=1)
        return [(run := self._at_work.pop(one), self._outcome(one, run)) for one in done]

    def close(self) -> None:
        """Stop what is at work; it goes on from its checkpoint another time."""
        for one in self._at_work:
            self._ray.cancel(one, force=True)
        self._stack.close()

    def _outcome(self, one: Any, run: StudyRun) -> Outcome:
        try:
            found: Outcome = self._ray.get(one)
        except self._ray.exceptions.RayError as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            problem = Problem(
                f"engine ray: {reason}",
                "if memory is short use fewer --jobs or a smaller batch_size; the same command tries it again",
            )
            return self.runs.note_failure(run, [problem])
        return found


_KEPT: dict[str, SharedRuns] = {}
"""Of a worker's process: the next run may have the same teacher."""


def _make(path: str, keep: bool, threads: int, run: StudyRun) -> Outcome:
    """In a worker's process."""
    import torch

    torch.set_num_threads(threads)
    runs = _KEPT.setdefault(path, SharedRuns(Path(path), keep))
    return runs.carry_out(run)


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
