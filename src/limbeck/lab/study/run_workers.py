"""Who makes a study's runs: this process, or several of them, each on cores of its own.

A process that dies takes one run with it, not the study; it is replaced.
"""

import _thread
import logging
import multiprocessing
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, final

from limbeck.lab.study.shared_runs import Outcome, SharedRuns, StudyRun
from limbeck.support.cores import cores
from limbeck.support.errors import LimbeckError, Problem

_GRACE_SECONDS = 10.0
"""Seconds that a process gets to end after a request."""
_OF_SIGNAL = 128
"""What shells add to a signal's number for the exit code of a process that it ended."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class RunMaker(ABC):
    """Makes runs, up to `free` at a time."""

    @property
    @abstractmethod
    def free(self) -> int:
        """How many runs could be started now."""

    @abstractmethod
    def start(self, run: StudyRun) -> None:
        """Begin a run; only while something is free."""

    @abstractmethod
    def finished(self) -> list[tuple[StudyRun, Outcome]]:
        """The runs that ended since the last call; waits for one. Empty if nothing was started."""

    @abstractmethod
    def close(self) -> None:
        """Stop all current runs; they resume from their checkpoints another time."""


@final
class OneAfterTheOther(RunMaker):
    """In this process."""

    def __init__(self, runs: SharedRuns, *, show: bool) -> None:
        self.runs, self.show = runs, show
        self._done: deque[tuple[StudyRun, Outcome]] = deque()

    @property
    def free(self) -> int:
        """One, unless a run has just been made."""
        return 1 - len(self._done)

    def start(self, run: StudyRun) -> None:
        """Make it at once."""
        self._done.append((run, self.runs.carry_out(run, show=self.show)))

    def finished(self) -> list[tuple[StudyRun, Outcome]]:
        """The run that was made last."""
        done = list(self._done)
        self._done.clear()
        return done

    def close(self) -> None:
        """Nothing is at work between two calls."""


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    cores: Sequence[int]
    run: StudyRun | None = None


@final
class SideBySide(RunMaker):
    """In several processes, each with an equal part of the cores, or a given number, and one thread per core."""

    def __init__(self, runs: SharedRuns, jobs: int, threads: int | None = None) -> None:
        self.runs = runs
        self._workers = [self._new(part[:threads]) for part in parts_of_cores(jobs)]

    @property
    def free(self) -> int:
        """How many processes wait."""
        return sum(worker.run is None for worker in self._workers)

    def start(self, run: StudyRun) -> None:
        """Give it to one that waits."""
        worker = next(one for one in self._workers if one.run is None)
        worker.run = run
        worker.pipe.send(run)

    def finished(self) -> list[tuple[StudyRun, Outcome]]:
        """The runs that have ended, at least one; a process that died has ended its run."""
        busy = [one for one in self._workers if one.run is not None]
        if not busy:
            return []
        ready = wait([one.pipe for one in busy])
        return [self._answer_of(one) for one in busy if one.pipe in ready]

    def close(self) -> None:
        """End all processes, each by its own shutdown first: resources shared with the system are released."""
        for worker in self._workers:
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(_GRACE_SECONDS)
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()

    def _answer_of(self, worker: _Worker) -> tuple[StudyRun, Outcome]:
        run = worker.run
        assert run is not None  # it was busy
        try:
            outcome = worker.pipe.recv()
            worker.run = None
        except (EOFError, OSError):
            outcome = self._replace(worker, run)
        return run, outcome

    def _replace(self, worker: _Worker, run: StudyRun) -> Outcome:
        worker.process.join()
        worker.pipe.close()
        problem = Problem(
            f"its process ended {_how(worker.process.exitcode or 0)}",
            "if memory is short use fewer --jobs or a smaller batch_size; the same command tries it again",
        )
        self._workers[self._workers.index(worker)] = self._new(worker.cores)
        return self.runs.note_failure(run, [problem])

    def _new(self, part: Sequence[int]) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        quiet = logging.getLogger("limbeck").level
        process = context.Process(
            target=_work,
            args=(theirs, self.runs.forgetting(), list(part), quiet),
            daemon=True,
        )
        # A library reads these when it is loaded, which may be before `_work` begins.
        before = {name: os.environ.get(name) for name in _THREADS}
        os.environ.update(dict.fromkeys(_THREADS, str(len(part))))
        try:
            process.start()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        theirs.close()
        return _Worker(process, ours, part)


def parts_of_cores(jobs: int) -> list[list[int]]:
    """The cores of this process in `jobs` equal parts; remaining cores stay idle.

    With more jobs than cores some share one.
    """
    known = (
        sorted(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else list(range(cores() or 1))
    )
    each = max(1, len(known) // jobs)
    return [
        [known[(number * each + one) % len(known)] for one in range(each)] for number in range(jobs)
    ]


def use_cores(part: Sequence[int]) -> None:
    """Keep this process to some cores, with as many threads."""
    import torch

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, part)
    torch.set_num_threads(len(part))


def _how(code: int) -> str:
    """How a process ended, by its exit code: below 0 and above 128 a signal ended it."""
    number = -code if code < 0 else code - _OF_SIGNAL
    known = {one.value: one.name for one in signal.Signals}
    return f"by signal {known[number]}" if number in known else f"with exit code {code}"


def _work(pipe: Connection, runs: SharedRuns, part: list[int], level: int) -> None:
    """The life of a worker: runs in, outcomes out, until a request to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_cores(part)
    logging.getLogger("limbeck").setLevel(level)
    while True:
        try:
            run = pipe.recv()
        except EOFError:
            return
        pipe.send(runs.carry_out(run))


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """End by an exception, as Ctrl-C ends a study of one process: open resources are closed on the way.

    The signal's own way out would leave the semaphores that progress bars have for their lines.
    """
    signal.signal(number, signal.SIG_IGN)  # once is enough
    raise SystemExit(_OF_SIGNAL + number)


def _end_with_parent() -> None:
    """A run whose study was killed stops too, instead of continuing unseen; its checkpoint resumes it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        _thread.interrupt_main(signal.SIGTERM)
        time.sleep(_GRACE_SECONDS)
        os._exit(1)


# A study's runs as tasks of a Ray cluster, on this machine or others that see the same folder.


_TIMES_MORE = 3
"""How often a run is begun again whose process died; it resumes from its last checkpoint."""


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
        """The runs that have ended, at least one."""
        if not self._at_work:
            return []
        done, _ = self._ray.wait(list(self._at_work), num_returns=1)
        return [(run := self._at_work.pop(one), self._outcome(one, run)) for one in done]

    def close(self) -> None:
        """Stop all current runs; they resume from their checkpoints another time."""
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
"""In a worker's process: the next run may have the same teacher."""


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

    `address`: a cluster's; by default the one that `RAY_ADDRESS` names, otherwise one started on this machine.

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
    return "look for other Ray processes on this machine (ray status), or leave --engine out"
