"""The position of a training run: the one value that carries time and randomness.

Mappings, objectives and schedules are
functions of a `StepState`, so that a resumed run, and every process of a multi-process one, sees the
same draws and weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class StepState:
    """A point of a run.

    Attributes:
        seed: the run's.
        epoch: from 0.
        step: the optimizer's, from 0.
        progress: in 0..1.
        passes: how often the training rows were seen, with fractions.
        length: how often they will have been at the run's end, 0 where that is not known.
        layers: the student layers that learn now; None for all of them.
        teacher: who teaches now, of several; counted from 0.
        sharing: processes among which the examples of a forward pass are divided.
    """

    seed: int = 0
    epoch: int = 0
    step: int = 0
    progress: float = 0.0
    passes: float = 0.0
    length: float = 0.0
    layers: tuple[int, ...] | None = None
    teacher: int = 0
    sharing: int = 1

    def epoch_generator(self, stream: int = 0) -> np.random.Generator:
        """A generator that depends on the seed, the epoch and the `stream` alone."""
        return np.random.default_rng([self.seed, self.epoch, stream])

    def step_generator(self, stream: int = 0) -> np.random.Generator:
        """A generator that depends on the seed, the step and the `stream` alone."""
        return np.random.default_rng([self.seed, self.step, stream, _STEPS])

    def device_generator(self, device: torch.device, stream: int = 0) -> torch.Generator:
        """The same where tensors are, so that a step's draws need no copy to the device.

        Kinds of devices draw differently; processes on devices of one kind draw alike.
        """
        import torch  # here, as recipes are read without torch

        seed = int(self.step_generator(stream).integers(2**63))
        return torch.Generator(device).manual_seed(seed)


# Keeps the random numbers of a step apart from the numbers of the epoch with the same index.
_STEPS = 1
