"""How far predicting has come, on standard error: rows, rows a second, and the time left where the length is known.

Part of `limbeck.predicting`.
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from limbeck.data.stream import RowStream
from limbeck.labelling.fill import spoken

_LINE_SECONDS = 60.0


class PredictProgress:
    """A bar on a terminal, a line a minute in a log; a context.

    How far it is comes from the bytes of the files that were read, as nobody counts rows beforehand.
    """

    def __init__(self, console: Console, stream: RowStream) -> None:
        self.rows = 0
        self._console, self._stream = console, stream
        self._bar = Progress(
            TextColumn("{task.fields[rows]:,} rows"),
            BarColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            # Chunks are read at once, so that bytes come in jumps.
            speed_estimate_period=300,
        )
        self._task = self._bar.add_task("rows", total=stream.size, rows=0, speed="")
        self._began = self._last = time.monotonic()
        self._start = 0

    def __enter__(self) -> PredictProgress:
        """Begin to count: what was read before was skipped."""
        self._began = self._last = time.monotonic()
        self._start = self._stream.position
        self._bar.reset(self._task, total=self._stream.size, completed=self._start)
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return max(time.monotonic() - self._began, 1e-9)

    def advance(self, rows: int) -> None:
        """So many more rows are predicted."""
        self.rows += rows
        self._bar.update(
            self._task, rows=self.rows, speed=f"{self.rows / self.seconds:,.0f} rows/s"
        )
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last >= _LINE_SECONDS:
            self._last = now
            self._console.print(self._line())

    def chunk_done(self) -> None:
        """All rows that were read are predicted."""
        self._bar.update(self._task, completed=self._stream.position)

    def _line(self) -> str:
        line = f"{self.rows:,} rows, {self.rows / self.seconds:,.1f} rows/s"
        size, done = self._stream.size, self._stream.position - self._start
        if size is None or not done:
            return line
        left = self.seconds * (size - self._stream.position) / done
        return f"{line}, about {spoken(left)} left"
