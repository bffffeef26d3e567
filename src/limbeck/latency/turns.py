"""Timing in turns: every model takes a turn in every round, and no round begins with the same one.

A slow minute of the machine then slows all models alike, and what a model's neighbour leaves in the
caches is another neighbour's each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limbeck.latency.contenders import Contender
from limbeck.latency.report import BenchCondition, Measurement
from limbeck.latency.worker import BenchProcess
from limbeck.support.errors import LimbeckError

_MIB = 2**20
PASSES_A_TURN = 5
"""Timed passes of a turn, after one that is not: the first finds another model's data in the caches."""


@dataclass(frozen=True)
class Turn:
    """One contender under one condition, with its inputs' file."""

    who: Contender
    condition: BenchCondition
    inputs: Path


@dataclass
class _Racer:
    """A contender's process; `opened` is what it said when the model was loaded, `error` what went wrong."""

    process: BenchProcess
    opened: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    def ask(self, **request: Any) -> dict[str, Any]:
        """What the process replies; nothing once something went wrong."""
        if self.error:
            return {}
        try:
            return self.process.ask(**request)
        except LimbeckError as error:
            self.error = error.problems[0].message.removeprefix("bench: ")
            return {}


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
    racers: dict[str, _Racer] = {}
    try:
        for name, who in {turn.who.name: turn.who for turn in turns}.items():
            racers[name] = racer = _Racer(BenchProcess(name, threads))
            racer.opened = racer.ask(
                do="open",
                backend=who.backend,
                path=who.path,
                threads=threads,
                cores=_pinned(threads),
            )
        found = []
        for condition in dict.fromkeys(turn.condition.words for turn in turns):
            here = [turn for turn in turns if turn.condition.words == condition]
            said = _rounds(here, racers, (warm_up, passes, passes_a_turn), step)
            found += [
                _measurement(turn, racers[turn.who.name], said[turn.who.name], passes)
                for turn in here
            ]
        return found
    finally:
        for racer in racers.values():
            racer.process.close()


def _rounds(
    turns: Sequence[Turn],
    racers: Mapping[str, _Racer],
    counts: tuple[int, int, int],
    step: Callable[[int], None],
) -> dict[str, list[dict[str, Any]]]:
    """What each process said of each turn, the one that warms up first."""
    warm_up, passes, passes_a_turn = counts
    said: dict[str, list[dict[str, Any]]] = {turn.who.name: [] for turn in turns}
    for number in range(-1, rounds_of(passes, passes_a_turn)):  # the one before the first warms up
        start = max(number, 0) % len(turns)
        for turn in [*turns[start:], *turns[:start]]:
            count = warm_up if number < 0 else 1 + passes_a_turn
            said[turn.who.name].append(
                racers[turn.who.name].ask(do="run", inputs=turn.inputs, passes=count)
            )
            step(1)
    return said


def rounds_of(passes: int, passes_a_turn: int = PASSES_A_TURN) -> int:
    """How many turns it takes."""
    return -(-passes // passes_a_turn)


def _measurement(
    turn: Turn, racer: _Racer, said: Sequence[Mapping[str, Any]], passes: int
) -> Measurement:
    replies = [one for one in said if one]
    held = replies[-1] if replies else {}
    after, before = held.get("anonymous_bytes"), racer.opened.get("bytes_before")
    mapped = held.get("mapped_bytes")
    who = turn.who
    made = Measurement(
        model=who.model,
        backend=who.backend,
        form=who.form,
        condition=turn.condition,
        load_seconds=racer.opened.get("load_seconds"),
        cold_ms=replies[0]["ms"][0] if replies else None,
        memory_mib=None if after is None or before is None else (after - before) / _MIB,
        mapped_mib=None if mapped is None else mapped / _MIB,
        disk_mib=who.bytes / _MIB,
        score=who.score,
        rows=who.rows,
        error=racer.error,
    )
    if racer.error:
        return made
    wall, cpu = ([ms for one in replies[1:] for ms in one[name][1:]] for name in ("ms", "cpu_ms"))
    return made.with_times(wall[:passes], cpu[:passes])


def _pinned(threads: int) -> list[int] | None:
    """The cores to keep to: as many as threads, of those this process may use."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return sorted(os.sched_getaffinity(0))[:threads]
