"""CPU cores that this process may use, and its memory."""

import os
from collections.abc import Sequence
from pathlib import Path

from limbeck.support.errors import LimbeckError


def cores() -> int | None:
    """By the affinity mask where there is one: schedulers and containers give a part of a machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def check_threads(threads: Sequence[int]) -> None:
    """Raises LimbeckError if there are fewer cores than threads."""
    limit = cores()
    if limit is not None and max(threads) > limit:
        raise LimbeckError(
            f"threads {max(threads)}: there are fewer cores", f"give at most {limit}"
        )


def anonymous_bytes() -> int | None:
    """Memory that is no file's: computed values, and weights that were copied; if Linux reports it."""
    try:
        text = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return None
    found = [line.split() for line in text.splitlines()]
    return 1024 * sum(int(words[1]) for words in found if words[0] == "Anonymous:")
