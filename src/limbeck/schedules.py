"""Weighted when: the weight of a term as a pure function of progress.

On the way of a training step: after `objectives`, before the engine weighs and adds.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from limbeck.moment import Moment


def _number(value: object) -> object:
    """`1/3` in a recipe means the fraction, not its rounded decimal."""
    if isinstance(value, str):
        try:
            return float(Fraction(value.replace(" ", "")))
        except (ValueError, ZeroDivisionError):
            return value
    return value


Number = Annotated[float, BeforeValidator(_number)]


class Ramp(BaseModel):
    """A weight moving linearly from `start` to `end` over the run's first `over`, then staying."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: Number = Field(0.0, description="weight at the first step")
    end: Number = Field(description="weight after the ramp")
    over: Number = Field(gt=0, le=1, description="share of all optimisation steps the ramp takes")
    by: Literal["step", "epoch"] = Field(
        "step", description="move every step, or at the start of an epoch"
    )

    def at(self, moment: Moment) -> float:
        """The weight at `moment`."""
        progress = moment.progress
        if self.by == "epoch" and moment.passes > 0:
            progress *= moment.epoch / moment.passes
        return self.start + (self.end - self.start) * min(1.0, progress / self.over)


Weight = Number | Ramp


def weight_at(weight: float | Ramp, moment: Moment) -> float:
    """A constant weight, or the ramp's value at `moment`."""
    return weight.at(moment) if isinstance(weight, Ramp) else weight
