"""How many CPU cores this process may use."""

import os


def cores() -> int | None:
    """By the affinity mask where there is one: schedulers and containers give a part of a machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()
