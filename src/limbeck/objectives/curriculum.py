"""Layers that learn one after the other, from the bottom up, and what waits for them.

Part of `limbeck.objectives`. Internal-KD's progressive (PID) and stacked (SID) distillation.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import torch
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from torch import Tensor, nn

from limbeck.support.errors import Problem, problem_list, raise_problems, unknown
from limbeck.support.machine import ReadOnce
from limbeck.support.settings import Number, Passes, Settings
from limbeck.support.step_state import StepState


class CurriculumSpec(Settings):
    """When each student layer learns."""

    terms: list[str] = Field(min_length=1, description="terms that go through their layers")
    order: Literal["progressive", "stacked"] = Field(
        description="one layer at a time, or each together with those below it"
    )
    wait: list[str] = Field(default_factory=list, description="terms that start after the layers")
    share: Number = Field(0.8, gt=0, le=1, description="share of the run for layers, split evenly")
    epochs_per_layer: Passes | list[Passes] | None = Field(
        None, description="epochs a layer has at most, one number or one a layer; instead of share"
    )
    move_on: Literal["epochs", "steps"] = Field(
        "epochs",
        description="when a layer's time is up: at the end of an epoch, or at any step; a run of "
        "fewer epochs than layers and one more goes by steps",
    )
    then: Literal["head", "student"] = Field(
        "head",
        description="trained after the last layer: the modules after it (head), or the complete student",
    )
    watch: str | None = Field(
        None, description="term whose sum over an epoch moves the layers on when it is small enough"
    )
    below: Number | None = Field(None, gt=0, description="that sum, exclusive")

    @model_validator(mode="after")
    def _makes_sense(self) -> "CurriculumSpec":
        if (self.watch is None) != (self.below is None):
            raise ValueError("`watch` and `below` go together: which term, and how small")
        if self.watch is not None and self.watch not in self.terms:
            raise ValueError(f"`watch` names {self.watch!r}, which is not among `terms`")
        both = sorted(set(self.terms) & set(self.wait))
        if both:
            raise ValueError(f"{both[0]!r} is under `terms` and under `wait`; leave one of them")
        limits = self.epochs_per_layer
        parts = [x for x in (limits if isinstance(limits, list) else [limits or 1]) if x % 1]
        if parts and "move_on" in self.model_fields_set and self.move_on == "epochs":
            raise ValueError(
                f"`move_on: epochs` needs an integer number of epochs per layer, not {parts[0]:g}; round it, or "
                "take `move_on: steps`"
            )
        if self.epochs_per_layer is not None and "share" in self.model_fields_set:
            raise ValueError("`epochs_per_layer` replaces `share`; give one of them")
        return self

    @model_serializer(mode="wrap")
    def _without_idle_key(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        if self.epochs_per_layer is not None:
            written.pop("share", None)
        return written


class Curriculum(nn.Module):
    """Which layers learn at a moment: a function of progress, and of how often a watched term was
    small enough to move on early.

    Args:
        spec: the recipe's `curriculum:`.
        layers: the student layers of its terms, ascending.
        names: all terms of the recipe.

    Raises:
        LimbeckError: it names terms that are not there, or not as many limits as layers.
    """

    moved_on: Tensor

    def __init__(
        self, spec: CurriculumSpec, layers: tuple[int, ...], names: tuple[str, ...]
    ) -> None:
        super().__init__()
        raise_problems(_problems(spec, len(layers), names))
        self.spec = spec
        self.layers = layers
        # When each layer was left early, in progress and in passes over the data; infinity: it was
        # not. A buffer, so that a resumed run remembers.
        self.register_buffer(
            "moved_on", torch.full((len(layers), 2), torch.inf, dtype=torch.double)
        )

        self._read = ReadOnce()

    def place(self, step_state: StepState) -> int:
        """How many layers are through: 0 while the first one learns, len(layers) at the end."""
        whole = self._whole_epochs(step_state.length)
        if whole is not None:
            now, limits, column = float(step_state.epoch), whole, 1
        elif self.spec.epochs_per_layer is not None:
            now, limits, column = step_state.passes, self._own_limits(), 1
        else:
            part = self.spec.share / len(self.layers)
            now, limits, column = step_state.progress, [part] * len(self.layers), 0
        began = 0.0
        for number, early in enumerate(self._read(self.moved_on).tolist()):
            end = min(began + limits[number], early[column])
            # Rounding must not keep a layer for one step more than its share.
            if now < end - 1e-9:
                return number
            began = end
        return len(self.layers)

    def _own_limits(self) -> list[float]:
        limits = self.spec.epochs_per_layer
        return limits if isinstance(limits, list) else [limits or 0.0] * len(self.layers)

    def _whole_epochs(self, length: float) -> list[float] | None:
        """The epochs of each layer, in a run of `length` epochs whose layers share them.

        Their ends are the nearest to even parts that leave each layer an epoch, and one for what
        follows. None where layers move on by steps or have limits of their own, or there are too
        few epochs.
        """
        count = len(self.layers)
        # A run that stops inside an epoch has no end there to decide at.
        epochs = int(length + 1e-9)
        last = epochs - 1 if self.spec.share < 1 else epochs
        if not self._by_epoch or last < count:
            return None
        found: list[float] = []
        end = 0
        for number in range(count):
            nearest = math.floor(self.spec.share * length * (number + 1) / count + 0.5)
            began, end = end, min(max(nearest, end + 1), last - (count - 1 - number))
            found.append(float(end - began))
        return found

    @property
    def _by_epoch(self) -> bool:
        return self.spec.move_on == "epochs" and self.spec.epochs_per_layer is None

    def note(self, length: float) -> Problem | None:
        """A warning if a run of `length` epochs is too short to give each layer complete epochs."""
        if not self._by_epoch or self._whole_epochs(length) is not None:
            return None
        count = len(self.layers)
        needed = count + 1 if self.spec.share < 1 else count
        return Problem(
            f"curriculum.move_on: epochs: a run of {length:g} epoch{'' if length == 1 else 's'} is "
            f"too short for {count} layers{' and what follows' if needed > count else ''}: they share steps instead",
            f"train longer, epochs={needed}, or set curriculum.move_on=steps",
            "warning",
        )

    def head_alone(self, step_state: StepState) -> bool:
        """Whether the layers are finished and only the parts after them are trained."""
        return self.spec.then == "head" and self.place(step_state) == len(self.layers)

    def at(self, name: str, step_state: StepState) -> StepState | None:
        """The moment as a term sees it, with the layers that learn; None while it rests."""
        place = self.place(step_state)
        if name in self.spec.wait:
            return step_state if place == len(self.layers) else None
        if name not in self.spec.terms:
            return step_state
        if place == len(self.layers):
            return None
        first = 0 if self.spec.order == "stacked" else place
        return replace(step_state, layers=self.layers[first : place + 1])

    @torch.no_grad()
    def end_epoch(self, sums: Mapping[str, float], last: StepState, following: StepState) -> None:
        """After an epoch: move on if the watched term's sum over it was small enough.

        Args:
            sums: by term, its batch means added over the epoch.
            last: the epoch's last moment, whose layer was watched.
            following: the moment the next layer begins at.
        """
        place = self.place(last)
        if self.spec.watch is None or self.spec.below is None or place == len(self.layers):
            return
        if (
            self.place(following) == place
            and sums.get(self.spec.watch, torch.inf) < self.spec.below
        ):
            moved = [following.progress, following.passes]
            self.moved_on[place] = torch.tensor(moved, dtype=torch.double)


@problem_list
def _problems(spec: CurriculumSpec, layers: int, names: tuple[str, ...]) -> Iterator[Problem]:
    for name in (*spec.terms, *spec.wait):
        if name not in names:
            yield unknown("term in curriculum", name, names)
    limits = spec.epochs_per_layer
    if isinstance(limits, list) and len(limits) != layers:
        yield Problem(
            f"curriculum.epochs_per_layer: {len(limits)} limits for {layers} layers",
            "give one number for all, or one a layer",
        )
    for_the_whole_run = limits is None and spec.watch is None and spec.share == 1
    if not set(names) - set(spec.terms) and not for_the_whole_run:
        yield Problem(
            "curriculum: no term is left to learn from when the layers are through",
            "add one, such as soft: {compare: soft_cross_entropy}, or set share: 1",
        )
