"""The time that a compression has and has used, and what its next steps will take. Part of `limbeck.compressing`."""

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from limbeck.compressing.shapes import StudentShape
from limbeck.compressing.trials import Candidate, Trainings, Trial
from limbeck.support import files, machine

_LEAST_ROWS = 200
_FEWER = 0.9
# Forward and backward, as passes forward.
_PASSES = 3.0
_MARGIN = 1.2
"""A step may take at most this multiple of its time in a trial."""


class Extent(NamedTuple):
    """The rows and epochs of a training."""

    rows: int
    epochs: float


class Hours:
    """Seconds of every finished step, stored in a file: a start after a kill counts earlier starts' steps."""

    def __init__(self, path: Path, hours: float) -> None:
        self.seconds, self._path = 3600 * hours, path
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self.spent: dict[str, float] = known

    @property
    def left(self) -> float:
        """Seconds that no step has used; negative where they took longer."""
        return self.seconds - sum(self.spent.values())

    def of_trials(self, numbers: Iterable[int]) -> float:
        """Seconds of finished trials, by their numbers."""
        return sum(self.spent.get(f"trial {one}", 0.0) for one in numbers)

    def add(self, name: str, seconds: float) -> None:
        """Count a finished step; one that is read from disk the second time counts as the first time."""
        if name not in self.spent:
            self.spent[name] = seconds
            files.write_whole(self._path, json.dumps(self.spent, indent=1))

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count the time in this context."""
        began = time.monotonic()
        yield
        self.add(name, time.monotonic() - began)


@dataclass
class Pace:
    """How long trainings and exports take, by the trials.

    Attributes:
        trainings: makes them.
        trials: the measured ones.
        slower: how many times as long as expected the last finished step took, at least 1: a machine gets busier.
    """

    trainings: Trainings
    trials: Sequence[Trial]
    slower: float = 1.0

    def training(self, one: Candidate, rows: int, epochs: float | None = None) -> float:
        """Seconds of a training on this number of rows, by the trial of the nearest shape, or by as many passes.

        `epochs`: as many as usual if left out.
        """
        epochs = epochs or self.trainings.epochs(one.shape, rows)
        near, times = self._nearest(one.shape)
        if near is not None:
            return _MARGIN * self.slower * times * near.expected(rows, epochs)
        if machine.device().type != "cpu":  # passes are timed on the CPU
            return 0.0
        return _PASSES * rows * epochs * self._latency(one.shape) / 1e3

    def trial_batch(self, batch: Sequence[Candidate], rows: int) -> float:
        """Seconds of trials that are made together: the longest one, and the other exports before it."""
        longest = max(batch, key=lambda one: self.training(one, rows))
        exports = sum(self.export(one.shape) for one in batch if one is not longest)
        return self.training(longest, rows) + exports

    def export(self, shape: StudentShape) -> float:
        """Seconds of an export with its scores: a trial exports a shape and scores it several times too."""
        near, times = self._nearest(shape)
        return 0.0 if near is None else _MARGIN * self.slower * times * near.fixed

    def ends(self, best: Sequence[Trial]) -> float:
        """Seconds that the last steps need: an export of each finalist, the teacher's scores and its export."""
        whole = self.trainings.model.shapes.all[0]
        return sum(
            self.export(one) for one in (whole, whole, *(one.candidate.shape for one in best))
        )

    def rows_for(self, one: Candidate, seconds: float, count: int) -> int:
        """How many of `count` rows a training of the usual epochs may read in this number of seconds.

        It reads as many as a trial did at least.
        """
        return self._fitting(one, seconds, count, self.trainings.epochs)

    def extent_for(self, one: Candidate, seconds: float, count: int, seeds: int) -> Extent:
        """The size of a training in these seconds: first fewer epochs, for new rows teach more; then fewer rows.

        It has more epochs than usual only where the trainings of all seeds end in these seconds.
        """
        shape, least = one.shape, self.trainings.least_epochs
        usual, epochs = (
            self.trainings.epochs(shape, count),
            self.trainings.most_epochs(shape, count),
        )

        def late() -> bool:
            return self.training(one, count, epochs) * (seeds if epochs > usual else 1) > seconds

        while epochs > least(shape, count) and late():
            epochs -= 1
        if not late():
            return Extent(count, epochs)
        rows = self._fitting(one, seconds, count, least)
        return Extent(rows, least(shape, rows))

    def _fitting(
        self,
        one: Candidate,
        seconds: float,
        count: int,
        epochs: Callable[[StudentShape, int], float],
    ) -> int:
        near, _ = self._nearest(one.shape)
        least = min(count, near.rows if near else _LEAST_ROWS)
        rows = float(count)
        while (
            rows > least and self.training(one, int(rows), epochs(one.shape, int(rows))) > seconds
        ):
            rows *= _FEWER
        return int(max(rows, least))

    def took(self, expected: float, seconds: float) -> None:
        """Learn from a finished step how much slower than the trials the machine is by now."""
        self.slower = max(1.0, self.slower * seconds / max(expected, 1e-3))

    def _latency(self, shape: StudentShape) -> float:
        return max(self.trainings.model.predicted(shape, "float").latency, 1e-6)

    def _nearest(self, shape: StudentShape) -> tuple[Trial | None, float]:
        """The trial whose shape is about as fast, and how many times as slow this shape is, at least 1."""
        own = self._latency(shape)
        times = [
            (own / self._latency(one.candidate.shape), one)
            for one in self.trials
            if one.score is not None and one.candidate.shape.is_static == shape.is_static
        ]
        found, near = min(times, key=lambda one: abs(math.log(one[0])), default=(1.0, None))
        return near, max(1.0, found)
