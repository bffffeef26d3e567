"""Layer mappings: weights of shape (student layers, teacher layers), fixed, drawn or attended.

Part of `limbeck.mapping`. An objective asks a mapping three things: which student layers learn
(`slots`), which teacher layers are needed now (`active`), and how much each of them counts for a
slot (`weights`). It never knows which kind it was given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from limbeck.functional import attention_weights
from limbeck.moment import Moment


class Mapping(ABC):
    """Which teacher layers each student layer (slot) learns from.

    Attributes:
        slots: student layers that learn, in order (S of them).
        candidates: every teacher layer this mapping may ever ask for.
    """

    slots: tuple[int, ...]
    candidates: tuple[int, ...]
    reads_representations: bool = False

    @abstractmethod
    def rows(self, moment: Moment) -> tuple[tuple[int, ...], ...]:
        """For each slot the teacher layers it may learn from at `moment`."""

    def active(self, moment: Moment) -> tuple[int, ...]:
        """The teacher layers needed at `moment`, ascending (T of them)."""
        return tuple(sorted({layer for row in self.rows(moment) for layer in row}))

    def weights(
        self, moment: Moment, student: Sequence[Tensor], teacher: dict[int, Tensor]
    ) -> tuple[dict[int, float], ...] | Tensor:
        """Per slot the weight of each of its teacher layers.

        Or (B, S, T), a weight for each example, when the mapping reads the representations.
        """
        return tuple({layer: 1.0 / len(row) for layer in row} for row in self.rows(moment))


@dataclass(frozen=True)
class FixedMapping(Mapping):
    """The same teacher layers for the whole run: explicit, uniform, skip, first, last, buckets."""

    slots: tuple[int, ...]
    table: tuple[tuple[int, ...], ...]

    @property
    def candidates(self) -> tuple[int, ...]:  # type: ignore[override]
        """Every teacher layer in the table."""
        return self.active(Moment())

    def rows(self, moment: Moment) -> tuple[tuple[int, ...], ...]:
        """The table, whatever the moment."""
        return self.table


@dataclass(frozen=True)
class RandomMapping(Mapping):
    """RAIL-KD §3: each epoch S teacher layers drawn without replacement, sorted, given in order."""

    slots: tuple[int, ...]
    candidates: tuple[int, ...]

    def rows(self, moment: Moment) -> tuple[tuple[int, ...], ...]:
        """The draw of the moment's epoch: a function of the run's seed and the epoch alone."""
        drawn = moment.epoch_generator().choice(self.candidates, len(self.slots), replace=False)
        return tuple((int(layer),) for layer in sorted(drawn))


@dataclass(frozen=True)
class AttentionMapping(Mapping):
    """ALP-KD Eqs. 5–6: every example weighs teacher layers by their dot product with its student's.

    `table` holds the teacher layers each slot may attend to: all of them, or its bucket (NO, PO).
    Gradients flow through the weights.
    """

    slots: tuple[int, ...]
    table: tuple[tuple[int, ...], ...]
    reads_representations = True

    @property
    def candidates(self) -> tuple[int, ...]:  # type: ignore[override]
        """Every teacher layer in the table."""
        return self.active(Moment())

    def rows(self, moment: Moment) -> tuple[tuple[int, ...], ...]:
        """The layers each slot may attend to, whatever the moment."""
        return self.table

    def allowed(self, device: torch.device) -> Tensor | None:
        """(S, T) true where a slot may attend; None when every slot sees every layer."""
        layers = self.candidates
        if all(row == layers for row in self.table):
            return None
        return torch.tensor([[k in row for k in layers] for row in self.table], device=device)

    def weights(
        self, moment: Moment, student: Sequence[Tensor], teacher: dict[int, Tensor]
    ) -> Tensor:
        """(B, S, T) softmax of the dot products; `student` holds S, `teacher` T tensors (B, d)."""
        states = torch.stack(tuple(student), dim=1)
        layers = torch.stack([teacher[k] for k in self.candidates], dim=1)
        return attention_weights(states, layers, self.allowed(states.device))
