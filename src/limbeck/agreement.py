"""One decision for all processes of a run, where each would measure or look for itself.

Below everything that decides by what a machine does at the moment: which attention is faster, whether
stored teacher outputs are there. Processes that decided differently would compute differently, or wait for
each other for ever.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple, TypeVar

from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object, reduce
from torch import Tensor

from limbeck.transfer import accelerator

T = TypeVar("T")


class ShareOfStep(NamedTuple):
    """What one process does of an optimisation step.

    Attributes:
        batch_size: examples of a forward pass.
        accumulation: forward passes.
        sharing: processes among which one forward pass of the recipe is divided.
    """

    batch_size: int
    accumulation: int
    sharing: int


def processes() -> int:
    """How many processes make the run, as torchrun and accelerate tell each of them."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def share_of_step(batch_size: int, accumulation: int) -> ShareOfStep | None:
    """One process's part of a step, which holds as many examples whatever the number of processes.

    Forward passes are dealt out first, as what a term compares lies in one of them. None where no even part is whole.
    """
    passes = math.gcd(accumulation, processes())
    sharing = processes() // passes
    if batch_size % sharing:
        return None
    return ShareOfStep(batch_size // sharing, accumulation // passes, sharing)


def agreed(own: T) -> T:
    """The first process's value, in every process; every one has to call it. Alone: one's own."""
    if _alone():
        return own
    _processes()
    box = [own]
    broadcast_object_list(box)
    return box[0]


def largest(own: int) -> int:
    """The largest value of any process, in every process; every one has to call it."""
    if _alone():
        return own
    _processes()
    return max(gather_object([own]))


def summed(own: Tensor) -> Tensor:
    """The sum of every process's tensor, in every process; every one has to call it."""
    if _alone():
        return own
    _processes()
    return reduce(own, reduction="sum")


def is_first() -> bool:
    """Whether this process is the one that writes a run's files."""
    return _alone() or _processes().is_main_process


def wait_for_all() -> None:
    """Go on when every process has come here."""
    if not _alone():
        _processes().wait_for_everyone()


def _alone() -> bool:
    return processes() == 1


def _processes() -> PartialState:
    # As the Trainer's arguments do it later, which then find it done.
    return PartialState(cpu=accelerator() is None)
