"""Timing in turns: every model takes a turn in every round, and no round begins with the same one.

A slow minute of the machine then slows all models alike, and what a model's neighbour leaves in the
caches is another neighbour's each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from limbeck.latency.contenders import Contender
from limbeck.latency.report import BenchCondition, Measurement
from limbeck.latency.worker import BenchProcess, bytes_on_disk
from limbeck.support.cores import cores
from limbeck.support.errors import LimbeckError

_MIB = 2**20
_MEMORY = ("anonymous_bytes", "mapped_bytes", "private_bytes")
Held = dict[str, float | None]
"""Bytes of memory by what they are: as `_MEMORY` names them."""
Timed = tuple[float, float]
"""Milliseconds of a pass by the clock, and of CPU."""
PASSES_A_TURN = 5
"""Timed passes of a turn, after one that is not: the first finds another model's data in the caches."""


@dataclass(frozen=True)
class Turn:
    """One contender under one condition, with its inputs' file."""

    who: Contender
    condition: BenchCondition
    inputs: Path


def time_in_turns(
    turns: Sequence[Turn],
    *,
    threads: int,
    passes: int,
    warm_up: int,
    step: Callable[[int], None],
    passes_a_turn: int = PASSES_A_TURN,
) -> list[Measurement]:
    """Measure all turns, which have the same number of threads; one process for each contender.

    Args:
        passes: timed passes of each; `warm_up`: passes before the first of them.
        step: called with 1 after each turn.
    """
    processes: dict[str, BenchProcess] = {}
    errors: dict[str, str] = {}
    opened: dict[str, dict[str, float | None]] = {}
    try:
        for name, who in {turn.who.name: turn.who for turn in turns}.items():
            processes[name] = process = BenchProcess(name, threads)
            try:
                opened[name] = process.ask(
                    do="open",
                    backend=who.backend,
                    path=who.path,
                    threads=threads,
                    cores=_pinned(threads),
                )
            except LimbeckError as error:
                errors[name] = _reason(error)
        found = []
        for condition in dict.fromkeys(turn.condition.words for turn in turns):
            here = [turn for turn in turns if turn.condition.words == condition]
            times, cold, memory = _rounds(
                here, processes, errors, passes, warm_up, step, passes_a_turn
            )
            found += [
                _measurement(
                    turn, times[turn.who.name], cold.get(turn.who.name), opened, memory, errors
                )
                for turn in here
            ]
        return found
    finally:
        for process in processes.values():
            process.close()


def _rounds(
    turns: Sequence[Turn],
    processes: Mapping[str, BenchProcess],
    errors: dict[str, str],
    passes: int,
    warm_up: int,
    step: Callable[[int], None],
    passes_a_turn: int,
) -> tuple[dict[str, list[Timed]], dict[str, float], dict[str, Held]]:
    """Times of the passes that count, of the very first pass, and what is held after the last."""
    times: dict[str, list[Timed]] = {turn.who.name: [] for turn in turns}
    cold: dict[str, float] = {}
    memory: dict[str, Held] = {}
    rounds = rounds_of(passes, passes_a_turn)
    for number in range(-1, rounds):  # the one before the first warms up
        start = max(number, 0) % len(turns)
        for turn in [*turns[start:], *turns[:start]]:
            name = turn.who.name
            step(1)
            if name in errors:
                continue
            count = warm_up if number < 0 else 1 + passes_a_turn
            try:
                said = processes[name].ask(do="run", inputs=turn.inputs, passes=count)
            except LimbeckError as error:
                errors[name] = _reason(error)
                continue
            memory[name] = {name: said[name] for name in _MEMORY}
            cold.setdefault(name, said["ms"][0])
            if number >= 0:
                times[name] += list(zip(said["ms"], said["cpu_ms"], strict=True))[1:]
    return {name: found[:passes] for name, found in times.items()}, cold, memory


def rounds_of(passes: int, passes_a_turn: int = PASSES_A_TURN) -> int:
    """How many turns it takes."""
    return -(-passes // passes_a_turn)


def _measurement(
    turn: Turn,
    times: Sequence[Timed],
    cold: float | None,
    opened: Mapping[str, Mapping[str, float | None]],
    memory: Mapping[str, Held],
    errors: Mapping[str, str],
) -> Measurement:
    who = turn.who
    begun, held = opened.get(who.name, {}), memory.get(who.name, {})
    after, before = held.get("anonymous_bytes"), begun.get("bytes_before")
    made = Measurement(
        model=who.model,
        backend=who.backend,
        form=who.form,
        condition=turn.condition,
        load_seconds=begun.get("load_seconds"),
        cold_ms=cold,
        memory_mib=None if after is None or before is None else (after - before) / _MIB,
        mapped_mib=_mib(held.get("mapped_bytes")),
        process_mib=_mib(held.get("private_bytes")),
        disk_mib=bytes_on_disk(who.path) / _MIB,
        score=who.score,
        rows=who.rows,
        error=errors.get(who.name, ""),
    )
    if not times or made.error:
        return made
    return made.with_times([wall for wall, _ in times], [cpu for _, cpu in times])


def _mib(number: float | None) -> float | None:
    return None if number is None else number / _MIB


def _pinned(threads: int) -> list[int] | None:
    """The cores to keep to: as many as threads, of those this process may use."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return sorted(os.sched_getaffinity(0))[:threads]


def too_many_threads(threads: Sequence[int]) -> list[int]:
    """Those beyond the cores that this process may use."""
    limit = cores()
    return [number for number in threads if limit is not None and number > limit]


def _reason(error: LimbeckError) -> str:
    return error.problems[0].message.removeprefix("bench: ")
