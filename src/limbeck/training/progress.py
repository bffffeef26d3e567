"""Measurements of a run so far: means of the terms, seconds by cause, one entry per epoch.

Part of `limbeck.training`. Saved in every checkpoint, so that a resumed run reports the same as an
uninterrupted one. With several processes every number covers all of them together.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from limbeck.support.errors import LimbeckError
from limbeck.support.machine import is_first, summed
from limbeck.support.words import listed
from limbeck.training.feeding import Count

# Where a run's seconds go: at any time exactly one part is running, so the parts add up to the
# run. Checkpoints carry the seconds of earlier starts of the same run.


Part = Literal["preparation", "teams", "storing", "training", "evaluation", "measuring", "saving"]
PARTS: tuple[Part, ...] = get_args(Part)


class Parts:
    """Seconds by part, from now on; time that no other part claims counts as preparation.

    Args:
        clock: gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.before: dict[str, float] = {}
        """Seconds of earlier starts."""
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
        """Start from an earlier start's totals, and forget the totals of any before."""
        self.before = {name: float(seconds.get(name, 0.0)) for name in PARTS}


_LABELLED = "labelled"
_Groups = dict[tuple[str, ...], Tensor]


class Window:
    """Running sums of named scalars, kept on the device so that a step never waits for it.

    Scalars that come together are one group: while layers learn one after the other, not all terms
    come all the time. A scalar that is itself a mean, over the labeled examples of a micro-batch, is also kept by
    example, so that its mean covers the labeled examples, however few each micro-batch holds.
    """

    def __init__(self) -> None:
        self.groups: _Groups = {}
        """By names their sums, and last the number of micro-batches."""
        self.of_labelled: _Groups = {}
        """By names, sums over the labeled examples, and last the number of these."""

    def add(self, names: tuple[str, ...], values: Tensor) -> None:
        """Add one micro-batch: `values` holds a detached scalar for each name."""
        _add(self.groups, names, values, 1)

    def add_labelled(self, names: tuple[str, ...], values: Tensor, count: Count) -> None:
        """Add a micro-batch's means over its labeled examples, whose number is `count`."""
        _add(self.of_labelled, names, values, count)

    def sums(self) -> dict[str, float]:
        """Sum of each scalar since the last `clear`, over all processes, which all have to call."""
        return {name: total for name, (total, _) in _by_name(self.groups).items()}

    def means(self) -> dict[str, float]:
        """Mean of each scalar over the micro-batches since the last `clear` that had it, or over the labeled examples.

        Scalars without a labeled example are left out; empty if nothing was added. Every process has to call it,
        and gets the same answer.
        """
        found = _by_name(self.groups) | _by_name(self.of_labelled)
        return {name: total / count for name, (total, count) in found.items() if count}

    def labelled(self) -> int | None:
        """The number of labeled examples since the last `clear`; None if they are not counted.

        Every process has to call it.
        """
        counts = [count for _, _, count in _totals(self.of_labelled)]
        return round(sum(counts)) if counts else None

    def clear(self) -> None:
        """Start again."""
        self.groups.clear()
        self.of_labelled.clear()

    def state(self) -> list[dict[str, Any]]:
        """For a checkpoint: exact, JSON keeps every digit. Every process has to call it."""
        return [
            {"names": names, "sums": sums, kind: count}
            for kind, groups in (("count", self.groups), (_LABELLED, self.of_labelled))
            for names, sums, count in _totals(groups)
        ]

    def restore(self, state: list[dict[str, Any]], device: torch.device) -> None:
        """From a checkpoint, whose sums cover all processes: the first one takes them."""
        self.clear()
        for group in state:
            kind, groups = "count", self.groups
            if _LABELLED in group:
                kind, groups = _LABELLED, self.of_labelled
            numbers = [*group["sums"], group[kind]]
            both = torch.tensor(numbers, dtype=_exact(device), device=device)
            groups[tuple(group["names"])] = both if is_first() else torch.zeros_like(both)


def _add(groups: _Groups, names: tuple[str, ...], values: Tensor, count: Count) -> None:
    added = torch.cat([values, values.new_ones(1)]) * count
    before = groups.get(names)
    groups[names] = added if before is None else before.add_(added)


def _totals(groups: _Groups) -> Iterator[tuple[tuple[str, ...], list[float], float]]:
    """Names, sums and count of each group, over all processes."""
    for names, both in groups.items():
        *sums, count = summed(both).tolist()
        yield names, sums, count


def _by_name(groups: _Groups) -> dict[str, tuple[float, float]]:
    """Sum and count of each scalar, over all processes."""
    found: dict[str, tuple[float, float]] = {}
    for names, sums, count in _totals(groups):
        for name, value in zip(names, sums, strict=True):
            total, times = found.get(name, (0.0, 0.0))
            found[name] = (total + value, times + count)
    return found


def _exactly(scalars: Iterable[Tensor]) -> Tensor:
    """Scalars as one tensor to be summed, (n,), without their graphs."""
    values = torch.stack([scalar.detach() for scalar in scalars])
    return values.to(_exact(values.device))


def _exact(device: torch.device) -> torch.dtype:
    """Float64, except where the device knows none."""
    return torch.float32 if device.type == "mps" else torch.float64


class Clock:
    """Seconds of work that may be spread over several starts of one run."""

    def __init__(self) -> None:
        self.before = 0.0
        self._began: float | None = None

    def start(self) -> None:
        """Let it run, on top of `before`, the seconds of earlier starts."""
        self._began = time.perf_counter()

    def read(self) -> float:
        """Seconds so far."""
        return self.before + (0.0 if self._began is None else time.perf_counter() - self._began)

    def stop(self) -> float:
        """Seconds so far; sets the clock back to zero."""
        seconds = self.read()
        self.before, self._began = 0.0, None
        return seconds


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


@dataclass(frozen=True)
class LabelledTerms:
    """Terms of a micro-batch that are means over its labeled examples, and how many these are."""

    means: Mapping[str, Tensor]
    count: Count


@dataclass
class Progress:
    """All of it together."""

    since_log: Window = field(default_factory=Window)
    this_epoch: Window = field(default_factory=Window)
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    epoch_clock: Clock = field(default_factory=Clock)
    parts: Parts = field(default_factory=Parts)
    """Seconds by part of the complete run, with all its stages."""
    epochs: list[dict[str, Any]] = field(default_factory=list)
    sampled: Counter[str] = field(default_factory=Counter)
    """By teacher, of several, the optimization steps of this epoch."""
    earlier_examples: int = 0
    """Examples that the student was trained on in the epochs that have ended."""
    seen: Window = field(default_factory=Window)
    """Those of this epoch, as each process has counted them."""

    def add(
        self, terms: Mapping[str, Tensor], loss: Tensor, labelled: LabelledTerms | None = None
    ) -> None:
        """Add one micro-batch.

        Args:
            terms: as much as each weighs in its step.
            loss: their weighted sum.
            labelled: terms that are means over the labeled examples alone, as they are, where some have no label.
        """
        names, values = ("loss", *terms), _exactly([loss, *terms.values()])
        for window in (self.since_log, self.this_epoch):
            window.add(names, values)
        if labelled is not None:
            own, means = tuple(labelled.means), _exactly(labelled.means.values())
            for window in (self.since_log, self.this_epoch):
                window.add_labelled(own, means, labelled.count)

    def add_examples(self, count: int, device: torch.device) -> None:
        """Add the examples of a step that this process trained on."""
        self.seen.add(("examples",), torch.full((1,), count, dtype=_exact(device), device=device))

    def examples(self, rows: int | None) -> int:
        """Examples trained on so far, every pass counted. Every process has to call it.

        Args:
            rows: of the training set, if known. Where processes share it, some rows are given out twice
                so that all have equally many; an epoch still is no more than all rows.
        """
        this_epoch = round(self.seen.sums().get("examples", 0.0))
        return self.earlier_examples + (this_epoch if rows is None else min(this_epoch, rows))

    def end_epoch(self, entry: dict[str, Any], rows: int | None) -> None:
        """Keep an epoch's entry, and start the next one from nothing. Every process has to call it."""
        self.earlier_examples = self.examples(rows)
        self.epochs.append(entry)
        self.this_epoch.clear()
        self.seen.clear()
        self.sampled.clear()

    def restart(self) -> None:
        """Forget the training so far: the same run begins again. Its clocks continue."""
        for window in (self.since_log, self.this_epoch, self.seen):
            window.clear()
        self.sampled.clear()
        self.epochs = []
        self.earlier_examples = 0

    def non_finite(self) -> list[str]:
        """Names of the scalars of this epoch that are no longer finite; waits for the device."""
        return [name for name, mean in self.this_epoch.means().items() if not math.isfinite(mean)]

    def state(self) -> dict[str, Any]:
        """For a checkpoint. Every process has to call it."""
        return {
            "since_log": self.since_log.state(),
            "this_epoch": self.this_epoch.state(),
            "seconds": self.stopwatch.read(),
            "epoch_seconds": self.epoch_clock.read(),
            "parts": self.parts.read(),
            "epochs": self.epochs,
            "sampled": dict(self.sampled),
            "earlier_examples": self.earlier_examples,
            "seen": self.seen.state(),
        }

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """From a checkpoint."""
        self.since_log.restore(state["since_log"], device)
        self.this_epoch.restore(state["this_epoch"], device)
        self.stopwatch.seconds = dict(state["seconds"])
        self.epoch_clock.before = state["epoch_seconds"]
        self.parts.restore(state.get("parts", {}))
        self.epochs = list(state["epochs"])
        self.sampled = Counter(state.get("sampled", {}))
        self.earlier_examples = state.get("earlier_examples", 0)
        self.seen.restore(state.get("seen", []), device)


def stop_if_not_finite(progress: Progress, step: int, model: nn.Module | None = None) -> None:
    """End the run when a term, or a weight of the `model`, stopped being a number.

    Every process has to call it.

    Raises:
        LimbeckError: names the terms or weights and the step.
    """
    what, broken = "loss", progress.non_finite()
    if model is not None and not broken:
        what = "weights"
        broken = [
            name for name, weight in model.named_parameters() if not torch.isfinite(weight).all()
        ]
    if broken:
        raise LimbeckError(
            f"non-finite {what} by step {step}: {listed(broken, _NAMED)}",
            "lower lr, raise warmup, or run with precision fp32; the last checkpoint is kept",
        )


_NAMED = 5

PassesState = dict[str, Any]
"""`student`: its passes; `teachers`: each teacher's passes, as returned by `Passes.state`."""
