"""Carry out tasks in this process, or in several, each on its own cores or in a Ray cluster. Part of `limbeck.support`.

A process that dies takes one task with it; it is replaced.
"""

import _thread
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any, Generic, NoReturn, Protocol, TypeVar, final

from limbeck.support.cores import cores
from limbeck.support.errors import LimbeckError, Problem, check_choice, first_line

T = TypeVar("T")
R = TypeVar("R")
T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

ENGINES = ("local", "ray")

_GRACE_SECONDS = 10.0
"""Seconds that a process gets to end after a request."""
_AGAIN_SECONDS = 0.1
"""Seconds until a process that has not ended gets the request again."""
_OF_SIGNAL = 128
"""What shells add to a signal's number for the exit code of a process that it ended."""
_FEWER = (
    "if memory is short use fewer --jobs or a smaller batch_size; the same command tries it again"
)
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Work(Protocol[T_contra, R_co]):
    """Carries out tasks. Tasks, results and the work itself can be pickled, and each process keeps one copy of it."""

    def carry_out(self, task: T_contra, /) -> R_co:
        """Return the result of a task; an exception ends a process."""

    def lost(self, task: T_contra, problem: Problem, /) -> R_co:
        """Return the result of a task whose process has ended."""


class Workers(ABC, Generic[T, R]):
    """Carry out tasks, up to `free` at a time."""

    @property
    @abstractmethod
    def free(self) -> int:
        """How many tasks could be started now."""

    @abstractmethod
    def start(self, task: T) -> None:
        """Begin a task; only while something is free."""

    @abstractmethod
    def finished(self) -> list[tuple[T, R]]:
        """The tasks that ended since the last call; waits for one. Empty if nothing was started."""

    @abstractmethod
    def close(self) -> None:
        """Stop all current tasks."""

    def each(self, tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Carry out tasks, and yield the place of each and its result as they end."""
        due, begun = deque(enumerate(tasks)), dict[int, T]()
        while True:
            while due and self.free:
                at, task = due.popleft()
                begun[at] = task
                self.start(task)
            ended = self.finished()
            if not ended:
                return
            for task, result in ended:
                at = next(at for at, one in begun.items() if one is task)
                del begun[at]
                yield at, result


@final
class OneAfterTheOther(Workers[T, R]):
    """In this process."""

    def __init__(self, work: Work[T, R]) -> None:
        self.work = work
        self._done: deque[tuple[T, R]] = deque()

    @property
    def free(self) -> int:
        """One, unless a task has just ended."""
        return 1 - len(self._done)

    def start(self, task: T) -> None:
        """Carry it out at once."""
        self._done.append((task, self.work.carry_out(task)))

    def finished(self) -> list[tuple[T, R]]:
        """The task that ended last."""
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
    task: Any = None


@final
class SideBySide(Workers[T, R]):
    """In several processes, each with an equal part of the cores, or a given number, and one thread per core."""

    def __init__(self, work: Work[T, R], jobs: int, threads: int | None = None) -> None:
        self.work = work
        self._workers = [self._new(part[:threads]) for part in parts_of_cores(jobs)]

    @property
    def free(self) -> int:
        """How many processes wait."""
        return sum(worker.task is None for worker in self._workers)

    def start(self, task: T) -> None:
        """Give it to one that waits."""
        worker = next(one for one in self._workers if one.task is None)
        worker.task = task
        with suppress(OSError):  # it has died, as `finished` finds
            worker.pipe.send(task)

    def finished(self) -> list[tuple[T, R]]:
        """The tasks that have ended, at least one; a process that died has ended its task."""
        busy = [one for one in self._workers if one.task is not None]
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

    def _answer_of(self, worker: _Worker) -> tuple[T, R]:
        task, worker.task = worker.task, None
        try:
            return task, worker.pipe.recv()
        except (EOFError, OSError):
            return task, self._replace(worker, task)

    def _replace(self, worker: _Worker, task: T) -> R:
        worker.process.join()
        worker.pipe.close()
        said = f"its process ended {_how(worker.process.exitcode or 0)}"
        self._workers[self._workers.index(worker)] = self._new(worker.cores)
        return self.work.lost(task, Problem(said, _FEWER))

    def _new(self, part: Sequence[int]) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        quiet = logging.getLogger("limbeck").level
        process = context.Process(
            target=_work, args=(theirs, self.work, list(part), quiet), daemon=True
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


def _work(pipe: Connection, work: Work[Any, Any], part: list[int], level: int) -> None:
    """The life of a worker: tasks in, results out, until a request to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    signal.signal(signal.SIGTERM, _end)
    sys.unraisablehook = _end_again
    threading.Thread(target=_end_with_parent, daemon=True).start()
    use_cores(part)
    logging.getLogger("limbeck").setLevel(level)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(work.carry_out(task))


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """End by an exception, as Ctrl-C ends one process: open resources are closed on the way.

    The signal's own way out would leave the semaphores that progress bars have for their lines.
    """
    signal.signal(number, signal.SIG_IGN)  # once is enough
    raise SystemExit(_OF_SIGNAL + number)


def _end_again(unraisable: Any) -> None:
    """End again where a destructor has swallowed the exception, as Python does with all of them."""
    sys.__unraisablehook__(unraisable)
    if unraisable.exc_type is SystemExit:
        signal.signal(signal.SIGTERM, _end)
        # Later, when the destructor has ended.
        threading.Timer(_AGAIN_SECONDS, _thread.interrupt_main, (signal.SIGTERM,)).start()


def _end_with_parent() -> None:
    """A task whose command was killed stops too, instead of continuing unseen."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        _thread.interrupt_main(signal.SIGTERM)
        time.sleep(_GRACE_SECONDS)
        os._exit(1)


# Tasks of a Ray cluster, on this machine or others that see the same folders.


_TIMES_MORE = 3
"""How often a task is begun again whose process died."""


@final
class OnRay(Workers[T, R]):
    """Up to `jobs` tasks at a time, each with an equal part of the cluster's CPUs and GPUs.

    A task whose process died, with its machine or without, is begun again on another.
    """

    def __init__(self, work: Work[T, R], jobs: int, address: str | None = None) -> None:
        """Raises LimbeckError where Ray is not installed, or no cluster answers."""
        self.work, self._jobs = work, jobs
        self._stack = ExitStack()
        self._ray = self._stack.enter_context(ray_session(address))
        resources = self._ray.cluster_resources()
        cpus, gpus = int(resources.get("CPU", 1)), int(resources.get("GPU", 0))
        each = max(1, cpus // jobs)
        self._task = self._ray.remote(_carried_out).options(
            num_cpus=each, num_gpus=min(1, gpus / jobs), max_retries=_TIMES_MORE
        )
        self._said = uuid.uuid4().hex, work, each, Path.cwd()
        self._at_work: dict[Any, T] = {}

    @property
    def free(self) -> int:
        """How many more may be begun."""
        return self._jobs - len(self._at_work)

    def start(self, task: T) -> None:
        """Hand it to the cluster."""
        self._at_work[self._task.remote(*self._said, task)] = task

    def finished(self) -> list[tuple[T, R]]:
        """The tasks that have ended, at least one."""
        if not self._at_work:
            return []
        done, _ = self._ray.wait(list(self._at_work), num_returns=1)
        return [(task := self._at_work.pop(one), self._result(one, task)) for one in done]

    def close(self) -> None:
        """Stop all current tasks."""
        for one in self._at_work:
            self._ray.cancel(one, force=True)
        self._stack.close()

    def _result(self, one: Any, task: T) -> R:
        try:
            found: R = self._ray.get(one)
        except self._ray.exceptions.RayError as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            return self.work.lost(task, Problem(f"engine ray: {reason}", _FEWER))
        return found


_KEPT: dict[str, Work[Any, Any]] = {}
"""In a worker's process: models that one task has loaded serve the next one."""


def _carried_out(key: str, work: Work[T, R], threads: int, folder: Path, task: T) -> R:
    """In a worker's process, where relative paths mean the same."""
    import torch

    with suppress(OSError):  # a machine may have other folders
        os.chdir(folder)
    torch.set_num_threads(threads)
    kept: Work[T, R] = _KEPT.setdefault(key, work)
    return kept.carry_out(task)


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
            reason = first_line(error)
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


# The choice among them.


def check_engine(engine: str, address: str | None) -> None:
    """Raise LimbeckError for an unknown engine, an address of another one, and Ray that is not installed."""
    check_choice("engine", engine, ENGINES)
    if engine == "ray":
        imported_ray()
    elif address is not None:
        raise LimbeckError(f"--address {address} without a cluster", "give --engine ray as well")


@contextmanager
def workers(
    work: Work[T, R],
    jobs: int,
    engine: str = "local",
    address: str | None = None,
    threads: int | None = None,
) -> Iterator[Workers[T, R]]:
    """Workers for as long as the block lasts.

    Args:
        work: carries out their tasks.
        jobs: how many processes; with one, the tasks are carried out in this one.
        engine: local, or ray: processes of a Ray cluster.
        address: the cluster; by default the one that RAY_ADDRESS names, otherwise one on this machine.
        threads: in each of several local processes; by default one for every core of its part.
    """
    import torch

    before = torch.get_num_threads()
    found: Workers[T, R]
    if engine == "ray":
        found = OnRay(work, jobs, address)
    else:
        found = OneAfterTheOther(work) if jobs == 1 else SideBySide(work, jobs, threads)
    try:
        yield found
    finally:
        found.close()
        torch.set_num_threads(before)
