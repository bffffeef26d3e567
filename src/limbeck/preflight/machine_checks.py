"""Does the machine have what the settings ask of it.

Part of `limbeck.preflight`.
"""

from __future__ import annotations

import os

from limbeck.cores import cores
from limbeck.errors import Problem

_MOST_A_CORE = 4


def check_workers(workers: int) -> list[Problem]:
    """More processes that load batches than cores: slower, and with several times as many a standstill.

    Each process of a launched run starts `workers` of its own.
    """
    there = cores()
    # As torchrun counts the processes of one machine.
    processes = max(int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1)
    wanted = workers * processes
    if there is None or wanted <= there:
        return []
    times = f" in each of {processes} processes" if processes > 1 else ""
    return [
        Problem(
            f"workers: {workers}{times}, and this machine has {there} core{'s' * (there != 1)}",
            f"workers={there // processes}; 0 loads batches in the run's own process",
            "error" if wanted > _MOST_A_CORE * there else "warning",
        )
    ]
