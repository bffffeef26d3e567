"""One process at a time writes a run's folder. Part of `limbeck.support`.

The lock is the operating system's, so a process that is killed holds it no longer.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.support.machine import agreed, is_first

LOCK = ".limbeck-lock"
HOLDER = ".limbeck-holder.json"
"""Who holds the lock; left behind by a process that was killed."""
# Loaders of a killed process find out after some seconds, and hold its lock until then.
_ORPHANS_SECONDS = 30.0
_COMMAND = 100


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """The folder is this run's until the block ends; one process of several holds it for all.

    Raises:
        LimbeckError: another process writes there.
    """
    with ExitStack() as stack:
        problems: list[Problem] = []
        if is_first():
            try:
                stack.enter_context(held(folder))
            except LimbeckError as error:
                problems = error.problems
        problems = agreed(problems)
        raise_problems(problems)
        yield


@contextmanager
def held(folder: Path, option: str = "out") -> Iterator[None]:
    """As `in_use`, for one process alone; `option` names the folder in messages, "" where no other can be chosen."""
    made = _make(folder, option)
    lock = FileLock(folder / LOCK)
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if not _is_gone(holder := _holder(folder)):
                raise _refusal(folder, holder, option) from None
            try:
                lock.acquire(timeout=_ORPHANS_SECONDS)
            except Timeout:
                raise _refusal(folder, _holder(folder), option) from None
        _name_holder(folder)
        try:
            yield
        finally:
            (folder / HOLDER).unlink(missing_ok=True)
            if {path.name for path in folder.iterdir()} == {LOCK}:  # nothing was begun
                (folder / LOCK).unlink(missing_ok=True)
            lock.release()
    finally:
        for place in made:
            with suppress(OSError):  # it holds a run by now
                place.rmdir()


def _make(folder: Path, option: str) -> list[Path]:
    """Make the folder; return the folders that did not exist, the innermost first."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LimbeckError(
            f"{option}: cannot make {folder} ({error.strerror})",
            f"choose another place with --{option}",
        ) from None
    return made


def _name_holder(folder: Path) -> None:
    about = {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": " ".join(sys.argv)[:_COMMAND],
    }
    with suppress(OSError):  # it is for messages alone
        (folder / HOLDER).write_text(json.dumps(about), encoding="utf-8")


def _holder(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / HOLDER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_gone(holder: dict[str, Any]) -> bool:
    """Whether the process that holds the lock has ended, as far as this machine knows."""
    process = holder.get("process")
    if holder.get("host") != socket.gethostname() or not isinstance(process, int):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _refusal(folder: Path, holder: dict[str, Any], option: str) -> LimbeckError:
    who, fixes = "another process", ["wait for it"]
    if holder:
        who = f"process {holder.get('process')} on {holder.get('host')}"
        who += f", since {holder.get('since')} ({holder.get('command')})"
        fixes.append(f"or stop it (kill {holder.get('process')})")
    if option:
        fixes.append(f"or choose another place with --{option}")
    start = f"{option}: " if option else ""
    return LimbeckError(f"{start}{folder} is in use by {who}", ", ".join(fixes))
