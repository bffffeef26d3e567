"""Disks that are full, files that may not grow, folders that cannot be written; then the same command again."""

from __future__ import annotations

import random
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attacks.place import BAD, REFUSED, SAME, Ended, Place, Tried

_KINDS = ("two stages", "stored outputs", "a chain of assistants")


def disk(place: Place, *, seed: int = 0, count: int = 3) -> Iterator[Tried]:
    """`count` disks of a random size, `count` limits on files, and disks that are read-only."""
    chance = random.Random(seed)
    yield from _limited_files(place, chance, count)
    if _may_mount(place.folder):
        yield from _full_disks(place, chance, count)
        yield from _read_only_disk(place)
        yield from _read_only_store(place)


def _again(
    place: Place, kind: str, what: str, line: list[str], out: Path, first: Ended, store: str
) -> Tried:
    """What the first start said, and whether the second ends as the unbroken run."""
    if first.code == 0:
        outcome, why = place.compare(kind, out, first)  # there was room enough
        return Tried("disk", what, outcome, why)
    if not first.refused:
        return Tried("disk", what, BAD, f"exit code {first.code}: {first.said[-1500:]}")
    outcome, why = place.compare(kind, out, place.run(line, store))
    if outcome != SAME:
        return Tried("disk", what, BAD, f"{first.said[-500:]}\nthen: {why}")
    return Tried("disk", what, REFUSED, first.said)


# ---- the system's limit on the size of a file ----


def _limited_files(place: Place, chance: random.Random, count: int) -> Iterator[Tried]:
    for number in range(count):
        kind = _KINDS[number % len(_KINDS)]
        place.whole(kind)
        largest = int(2 ** chance.uniform(8, 16.5))
        out, store = place.fresh(kind), f"limited-store-{number}"
        line = place.line(kind, out)

        def limit(largest: int = largest) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))

        with place.under(limit):
            first = place.run(line, store)
        tried = _again(place, kind, "files may not grow beyond a limit", line, out, first, store)
        yield Tried(
            tried.group, tried.what, tried.outcome, f"{kind}, {largest} bytes: {tried.said}"
        )


# ---- a disk that is full ----


def _may_mount(folder: Path) -> bool:
    try:
        with _small_disk(folder / "mounted", 100):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def _small_disk(folder: Path, kilobytes: int) -> Iterator[Callable[[str], None]]:
    """A disk in memory; yields what mounts it again with other options."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    subprocess.run(mount, check=True, capture_output=True)
    try:
        yield lambda options: subprocess.run(
            ["mount", "-o", f"remount,{options}", str(folder)], check=True, capture_output=True
        )
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


def _full_disks(place: Place, chance: random.Random, count: int) -> Iterator[Tried]:
    for number in range(count):
        kind = _KINDS[number % len(_KINDS)]
        place.whole(kind)
        home = place.folder / f"disk-{number}"
        kilobytes = chance.randrange(4, 400, 4)
        with _small_disk(home, kilobytes) as again:
            out, store = home / "run", f"{home.name}/store"
            line = place.line(kind, out)
            first = place.run(line, store)
            again("size=64m")
            tried = _again(place, kind, "the disk is full", line, out, first, store)
        yield Tried(tried.group, tried.what, tried.outcome, f"{kind}, {kilobytes} KB: {tried.said}")


def _read_only_disk(place: Place) -> Iterator[Tried]:
    """Read-only before the run, and with a stopped run on it."""
    kind = "one stage"
    place.whole(kind)
    with _small_disk(place.folder / "read-only", 65536) as again:
        home = place.folder / "read-only"
        line = place.line(kind, home / "run")
        again("ro")
        first = place.run(line)
        again("rw")
        yield _again(place, kind, "the disk is read-only", line, home / "run", first, "store")
        again("ro")
        finished = place.run(line)  # nothing is to be written
        what = "a finished run is asked for on a read-only disk"
        fine = finished.refused or finished.code == 0
        yield Tried(
            "disk", what, (REFUSED if finished.refused else SAME) if fine else BAD, finished.said
        )


def _read_only_store(place: Place) -> Iterator[Tried]:
    """What a teacher said cannot be stored; `cache=always` asks for that."""
    kind = "stored outputs"
    place.whole(kind)
    with _small_disk(place.folder / "read-only-store", 65536) as again:
        out, store = place.fresh(kind), "read-only-store/store"
        line = place.line(kind, out)
        again("ro")
        first = place.run(line, store)
        again("rw")
        what = "the folder of stored outputs is read-only"
        yield _again(place, kind, what, line, out, first, store)
