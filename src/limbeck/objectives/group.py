"""All terms of a run together: one request a side, one forward, named scalars and their weights.

Part of `limbeck.objectives`. The only place that knows which terms are active.
"""

from __future__ import annotations

from collections.abc import Mapping as Batch
from functools import reduce
from operator import or_

import torch
from torch import Tensor, nn

from limbeck.capture import Request, Trace
from limbeck.errors import LimbeckError, Problem
from limbeck.moment import Moment
from limbeck.objectives.base import Objective
from limbeck.objectives.layers import LayerMatch
from limbeck.objectives.predictions import HardLabel, SoftLabel
from limbeck.objectives.shape import Shape
from limbeck.objectives.spec import HardSpec, LayerSpec, SoftSpec
from limbeck.schedules import Ramp, weight_at

# The name of the weighted sum in logs and records.
_TOTAL = "loss"


class Objectives(nn.Module):
    """The named terms of a recipe, built for a pair of models.

    Args:
        specs: the recipe's `objectives:`.
        shape: depth and width of both models.

    Raises:
        LimbeckError: every term that cannot be built for these models, with its reason.
    """

    def __init__(self, specs: dict[str, HardSpec | SoftSpec | LayerSpec], shape: Shape) -> None:
        super().__init__()
        self.weights: dict[str, float | Ramp] = {name: s.weight for name, s in specs.items()}
        self.terms = nn.ModuleDict()
        problems: list[Problem] = []
        for name, spec in specs.items():
            try:
                self.terms[name] = _build(name, spec, shape)
            except LimbeckError as error:
                problems.extend(error.problems)
            except KeyError:  # torch refuses dots and the names of its own attributes
                problems.append(_refused_name(name))
        if _TOTAL in specs:
            problems.append(_refused_name(_TOTAL))
        if problems:
            raise LimbeckError(problems)

    def __getitem__(self, name: str) -> Objective:
        """The term of that name."""
        term = self.terms[name]
        assert isinstance(term, Objective)
        return term

    def weight(self, name: str, moment: Moment) -> float:
        """The weight of a term at `moment`."""
        return weight_at(self.weights[name], moment)

    def request(self, side: str, moment: Moment) -> Request:
        """What all terms together need of one side."""
        return reduce(or_, (self[name].request(side, moment) for name in self.terms), Request())

    def active_layers(self, moment: Moment) -> dict[str, list[list[int]]]:
        """[student layer, teacher layer] pairs of every term that has layers."""
        pairs = {name: self[name].active_layers(moment) for name in self.terms}
        return {name: found for name, found in pairs.items() if found is not None}

    def forward(
        self, student: Trace, teacher: Trace, batch: Batch[str, Tensor], moment: Moment
    ) -> dict[str, Tensor]:
        """The unweighted terms by name, in float32 whatever the autocast type."""
        device_type = next(iter(batch.values())).device.type
        with torch.autocast(device_type, enabled=False):
            return {name: self[name](student, teacher, batch, moment) for name in self.terms}

    def total(self, terms: dict[str, Tensor], moment: Moment) -> Tensor:
        """The weighted sum: the only place where terms are weighted and added."""
        return torch.stack([self.weight(name, moment) * term for name, term in terms.items()]).sum()


def _refused_name(name: str) -> Problem:
    return Problem(f"objectives.{name}: a term cannot have this name", "choose another")


def _build(name: str, spec: HardSpec | SoftSpec | LayerSpec, shape: Shape) -> Objective:
    match spec:
        case HardSpec():
            return HardLabel(spec, shape)
        case SoftSpec():
            return SoftLabel(spec, shape)
        case LayerSpec():
            return LayerMatch(spec, shape, f"objectives.{name}")
