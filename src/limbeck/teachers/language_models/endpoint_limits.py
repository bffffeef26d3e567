"""How fast: requests evenly spaced in time, and none while a server asks for a pause."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """So much in a minute, without bursts: who comes gets the next free moment.

    Args:
        per_minute: None for no limit.
        clock: seconds, from any beginning.
    """

    def __init__(
        self, per_minute: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.each = 60 / per_minute if per_minute else 0.0
        self.clock = clock
        self._free = 0.0
        self._paused_until = 0.0

    @property
    def paused(self) -> bool:
        """Whether nobody may begin now, not even who has booked this moment: it is to book another."""
        return self.clock() < self._paused_until

    def book(self, amount: float = 1.0) -> float:
        """Take the next moment for so much; returns the seconds until then."""
        now = self.clock()
        begin = max(now, self._free, self._paused_until)
        self._free = begin + amount * self.each
        return begin - now

    def correct(self, amount: float) -> None:
        """So much more (or less) was used than was booked."""
        self._free += amount * self.each

    def pause(self, seconds: float) -> None:
        """Nobody begins before so many seconds are over."""
        self._paused_until = max(self._paused_until, self.clock() + seconds)
