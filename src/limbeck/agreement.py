"""One answer for all processes of a run, where each would measure or look for itself.

Below everything that decides by what a machine does at the moment: which attention is faster, whether
stored answers are there. Processes that decided differently would compute differently, or wait for
each other for ever.
"""

from __future__ import annotations

import os
from typing import TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

T = TypeVar("T")


def agreed(own: T) -> T:
    """The first process's value, in every process; every one has to call it. Alone: one's own."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return own
    # As the Trainer's arguments do it later, which then find it done.
    PartialState(cpu=not torch.accelerator.is_available())
    box = [own]
    broadcast_object_list(box)
    return box[0]
