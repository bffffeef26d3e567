"""Does the machine have what the settings ask of it.

Part of `limbeck.preflight`.
"""

from __future__ import annotations

import os

from limbeck.support.cores import cores
from limbeck.support.errors import Problem
from limbeck.support.machine import processes, share_of_step

_MOST_A_CORE = 4


def check_share(batch_size: int, accumulation: int) -> list[Problem]:
    """Whether the processes of a launched run can share an optimisation step evenly."""
    if share_of_step(batch_size, accumulation) is not None:
        return []
    count = processes()
    passes = f" times {accumulation} forward passes" if accumulation > 1 else ""
    return [
        Problem(
            f"batch_size {batch_size}: {count} processes cannot share a step of {batch_size} examples{passes} evenly",
            f"set batch_size={-(-batch_size // count) * count}, or start another number of processes",
        )
    ]


def check_workers(workers: int) -> list[Problem]:
    """More processes that load batches than cores: slower, and with several times as many a standstill.

    Each process of a launched run starts `workers` of its own.
    """
    there = cores()
    # As torchrun counts the processes of one machine.
    beside = max(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)
    wanted = workers * beside
    if there is None or wanted <= there:
        return []
    times = f" in each of {beside} processes" if beside > 1 else ""
    return [
        Problem(
            f"workers: {workers}{times}, and this machine has {there} core{'s' * (there != 1)}",
            f"workers={there // beside}; 0 loads batches in the run's own process",
            "error" if wanted > _MOST_A_CORE * there else "warning",
        )
    ]
