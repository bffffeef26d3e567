"""What storing a teacher's outputs takes and saves, told before anything is stored.

Part of `limbeck.teachers.outputs`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from limbeck.teachers.outputs.build import ask
from limbeck.teachers.outputs.columns import Ask, OutputLayout
from limbeck.teachers.outputs.places import Lengths
from limbeck.teachers.teacher import Teacher

# Bytes a second: mapped pages copied and widened. Slower disks are hidden by the page cache.
_READ_RATE = 5e8


@dataclass(frozen=True)
class Estimate:
    """Attributes: room on disk, and seconds: of one teacher pass, and of reading it back."""

    bytes: int
    teacher_seconds: float
    read_seconds: float

    def saved(self, passes: float) -> float:
        """Seconds that `passes` over the rows save, the pass that stores them counted."""
        return passes * (self.teacher_seconds - self.read_seconds) - self.teacher_seconds


def measure(
    teacher: Teacher,
    batch: Mapping[str, Tensor],
    wanted: Ask,
    lengths: Lengths,
    *,
    precision: str,
) -> Estimate:
    """From one batch of examples, and the lengths of all."""
    trace = ask(teacher, batch, wanted.request, precision)
    began = time.perf_counter()
    ask(teacher, batch, wanted.request, precision)
    seconds = time.perf_counter() - began
    per_token = seconds / int(trace.mask().sum())
    size = OutputLayout.of(trace, wanted).bytes(lengths)
    return Estimate(size, per_token * float(lengths["main"].sum()), size / _READ_RATE)
