"""Runs that are stopped at random moments and started again, until they end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from attacks.place import BAD, LIMIT, REFUSED, RUNS, Ended, Place, Tried, until_begun

HOW = {
    "SIGKILL": signal.SIGKILL,
    "SIGTERM": signal.SIGTERM,
    "Ctrl-C": signal.SIGINT,
}
_IN_A_ROW = 4
"""A run that was stopped so often may end."""


def kills(place: Place, *, seed: int = 0, count: int = 25, others: int = 6) -> Iterator[Tried]:
    """`count` times SIGKILL, spread over all kinds of run, and `others` times each other way."""
    chance = random.Random(seed)
    for name, how in HOW.items():
        wanted = count if name == "SIGKILL" else others
        kinds = list(RUNS) if name == "SIGKILL" else ["two stages", "stored outputs"]
        for number, kind in enumerate(kinds):
            share = wanted // len(kinds) + (number < wanted % len(kinds))
            while share > 0:
                row = min(share, _IN_A_ROW)
                stopped = list(_stopped(place, kind, name, how, row, chance))
                yield from stopped
                share -= len(stopped) or 1


def _stopped(
    place: Place, kind: str, name: str, how: int, row: int, chance: random.Random
) -> Iterator[Tried]:
    """One run, stopped `row` times or less, if it ends before; one `Tried` for each time."""
    place.whole(kind)
    out, what = place.fresh(kind), f"{name}: {kind}"
    store = f"store-of-{out.name}"
    line, said = place.line(kind, out), []
    for _ in range(row):
        sealed = _sealed(out)
        process = place.start(line, store)
        until_begun(process, out)
        until = time.monotonic() + chance.uniform(0, place.seconds[kind])
        lost = _watch(process, sealed, until)
        alive = process.poll() is None
        if alive:
            _stop(process, how)
        ended = place.wait(process)
        problem = lost or (_wrong_end(ended, how) if alive else "")
        if problem:
            yield Tried("kills", what, BAD, problem)
            return
        if not alive:
            break
        said.append(ended.said)
    if not said:  # it was faster than the kill
        return
    sealed = _sealed(out)
    process = place.start(line, store)
    lost = _watch(process, sealed, time.monotonic() + LIMIT)
    outcome, why = place.compare(kind, out, place.wait(process))
    if lost or outcome == REFUSED:
        outcome, why = BAD, lost or f"a start after a kill is refused: {why}"
    yield from (Tried("kills", what, outcome, why) for _ in said)


def _stop(process: subprocess.Popen[str], how: int) -> None:
    # A terminal sends Ctrl-C to all processes of the command; the system kills one.
    if how == signal.SIGINT:
        os.killpg(process.pid, how)
    else:
        process.send_signal(how)


def _wrong_end(ended: Ended, how: int) -> str:
    """What is wrong with how a command ended that was told to stop, if anything."""
    if ended.code is None:
        return f"went on for {LIMIT} s after it was told to stop"
    if "Traceback" in ended.said:
        return ended.said[-1500:]
    right = {signal.SIGINT: (130, 0), signal.SIGTERM: (-how, 143, 0)}.get(how, (-how, 0))
    return "" if ended.code in right else f"exit code {ended.code}: {ended.said[-1500:]}"


def _sealed(out: Path) -> dict[Path, int]:
    """Whole checkpoints → when they were sealed."""
    found = {}
    for seal in out.rglob("checkpoint-*/checksums.json"):
        try:
            found[seal] = seal.stat().st_mtime_ns
        except FileNotFoundError:
            continue
    return found


def _watch(process: subprocess.Popen[str], sealed: dict[Path, int], until: float) -> str:
    """Wait until a moment or the process's end; says which checkpoint was trained for again, if one was."""
    while time.monotonic() < until and process.poll() is None:
        for seal, before in sealed.items():
            try:
                if seal.stat().st_mtime_ns != before:
                    return f"{seal.parent.name} was whole and is trained for again"
            except FileNotFoundError:
                continue
        time.sleep(0.02)
    return ""
