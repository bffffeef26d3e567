"""Where a run's seconds go: at any time exactly one part is running, so the parts add up to the run.

Part of `limbeck.training`. Checkpoints carry the seconds of earlier starts of the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

Part = Literal["preparation", "teams", "storing", "training", "evaluation", "measuring", "saving"]
PARTS: tuple[Part, ...] = get_args(Part)


class Parts:
    """Seconds by part, from now on; what no other part claims is preparation.

    Args:
        clock: gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.before: dict[str, float] = {}
        """Of earlier starts."""
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._running: str = "preparation"
        self._since = clock()

    @contextmanager
    def part(self, name: Part) -> Iterator[None]:
        """Count the enclosed time under `name`, and not under the part around it."""
        around = self._running
        self._switch(name)
        try:
            yield
        finally:
            self._switch(around)

    def _switch(self, name: str) -> None:
        now = self._clock()
        self._seconds[self._running] = self._seconds.get(self._running, 0.0) + now - self._since
        self._running, self._since = name, now

    def read(self) -> dict[str, float]:
        """Seconds by part so far, earlier starts included."""
        self._switch(self._running)
        return {name: self.before.get(name, 0.0) + self._seconds.get(name, 0.0) for name in PARTS}

    def restore(self, seconds: dict[str, float]) -> None:
        """Start from what an earlier start had come to, whatever was known of earlier ones before."""
        self.before = {name: float(seconds.get(name, 0.0)) for name in PARTS}
