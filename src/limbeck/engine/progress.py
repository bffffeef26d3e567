"""What a run has measured so far: means of the terms, seconds by cause, one entry an epoch.

Part of `limbeck.engine`. Saved in every checkpoint, so that a resumed run reports what an unbroken one does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


class Window:
    """Running sums of named scalars, kept on the device so that a step never waits for it."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.sums: Tensor | None = None
        self.count = 0

    def add(self, names: tuple[str, ...], values: Tensor) -> None:
        """Add one micro-batch: `values` holds a detached scalar for each name, float64."""
        self.names = names
        self.sums = values.clone() if self.sums is None else self.sums.add_(values)
        self.count += 1

    def means(self) -> dict[str, float]:
        """Mean of each scalar since the last `clear`; empty if nothing was added."""
        if self.sums is None:
            return {}
        return dict(zip(self.names, (self.sums / self.count).tolist(), strict=True))

    def clear(self) -> None:
        """Start anew."""
        self.sums, self.count = None, 0

    def state(self) -> dict[str, Any]:
        """For a checkpoint: exact, JSON keeps every digit of a float64."""
        sums = None if self.sums is None else self.sums.tolist()
        return {"names": self.names, "sums": sums, "count": self.count}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """From a checkpoint."""
        self.names, self.count = tuple(state["names"]), state["count"]
        sums = state["sums"]
        self.sums = None if sums is None else torch.tensor(sums, dtype=torch.float64, device=device)


class Stopwatch:
    """Seconds by cause. On CUDA events are recorded and read later, so that timing never waits."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._pending: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def measure(self, cause: str, device: torch.device) -> Iterator[None]:
        """Count the time of the enclosed work under `cause`."""
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            yield
            end.record()
            self._pending.append((cause, start, end))
            return
        begin = time.perf_counter()
        yield
        self._add(cause, time.perf_counter() - begin)

    def _add(self, cause: str, seconds: float) -> None:
        self.seconds[cause] = self.seconds.get(cause, 0.0) + seconds

    def read(self) -> dict[str, float]:
        """Seconds by cause so far; waits for the device."""
        for cause, start, end in self._pending:
            end.synchronize()
            self._add(cause, start.elapsed_time(end) / 1000)
        self._pending.clear()
        return dict(self.seconds)


@dataclass
class Progress:
    """All of it together."""

    since_log: Window = field(default_factory=Window)
    this_epoch: Window = field(default_factory=Window)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    epochs: list[dict[str, Any]] = field(default_factory=list)

    def add(self, terms: dict[str, Tensor], loss: Tensor) -> None:
        """Add one micro-batch's terms and loss."""
        names = ("loss", *terms)
        values = torch.stack([loss.detach(), *(term.detach() for term in terms.values())]).double()
        self.since_log.add(names, values)
        self.this_epoch.add(names, values)

    def non_finite(self) -> list[str]:
        """Names of the scalars of this epoch that are no longer finite; waits for the device."""
        return [name for name, mean in self.this_epoch.means().items() if not math.isfinite(mean)]

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "since_log": self.since_log.state(),
            "this_epoch": self.this_epoch.state(),
            "seconds": self.stopwatch.read(),
            "epochs": self.epochs,
        }

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """From a checkpoint."""
        self.since_log.restore(state["since_log"], device)
        self.this_epoch.restore(state["this_epoch"], device)
        self.stopwatch.seconds = dict(state["seconds"])
        self.epochs = list(state["epochs"])
