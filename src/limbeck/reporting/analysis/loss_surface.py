"""The loss around a trained model, along two random directions. Part of `limbeck.reporting.analysis`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from limbeck.reporting.analysis.layer_probing import Progressed, nobody

Direction = dict[str, Tensor]


@dataclass(frozen=True)
class LossSurface:
    """Losses on a square of weights around a model's own.

    Attributes:
        steps: how far along either direction, in filters' norms; 0 is the model itself.
        losses: by step along the second direction (outer) and along the first.
        rows: how many the loss is over.
        seed: of the directions.
    """

    steps: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]
    rows: int
    seed: int

    @property
    def own(self) -> float:
        """The model's own loss."""
        middle = len(self.steps) // 2
        return self.losses[middle][middle]


def filter_normalised_direction(model: nn.Module, generator: torch.Generator) -> Direction:
    """A random direction, each filter as long as the model's own (Li et al. 2018, §4).

    A filter is what a weight holds of one output: a row of a matrix, of a table of embeddings, a kernel. Biases
    and normalisations have direction 0, as in the authors' release.
    """
    found = {}
    for name, weight in model.named_parameters():
        direction = torch.randn(weight.shape, generator=generator)
        if weight.dim() <= 1:
            found[name] = torch.zeros_like(weight)
            continue
        filters = direction.flatten(1)
        own = weight.detach().float().cpu().flatten(1).norm(dim=1, keepdim=True)
        scaled = filters * (own / (filters.norm(dim=1, keepdim=True) + 1e-10))
        found[name] = scaled.reshape(weight.shape).to(weight)
    return found


def loss_surface(
    model: nn.Module,
    loss: Callable[[], float],
    *,
    rows: int,
    points: int = 9,
    span: float = 1.0,
    seed: int = 0,
    progressed: Progressed = nobody,
) -> LossSurface:
    """L(θ + a·δ + b·η) on a square of a and b (Li et al. 2018, Eq. 1), δ and η filter-normalised.

    CR-ILD's Figure 10 goes to two other models' weights instead. The model's weights are as before afterwards.

    Args:
        model: whose weights are moved.
        loss: the loss of some rows with the weights that the model has at the moment.
        rows: how many these are.
        points: along either direction; odd, so that the model itself is among them.
        span: the largest step, in filters' norms.
        seed: of the directions.
        progressed: is told how many losses are done.

    Raises:
        ValueError: an even number of points, or fewer than 3.
    """
    if points < 3 or points % 2 == 0:
        raise ValueError(f"{points} points along a direction: an odd number from 3 on is needed")
    generator = torch.Generator().manual_seed(seed)
    first, second = (filter_normalised_direction(model, generator) for _ in range(2))
    start = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    steps = np.linspace(-span, span, points)
    steps[points // 2] = 0.0
    losses, done = [], 0
    try:
        for b in steps:
            row = []
            for a in steps:
                _move(model, start, (float(a), first), (float(b), second))
                row.append(loss())
                done += 1
                progressed(done, points**2)
            losses.append(tuple(row))
    finally:
        _move(model, start)
    return LossSurface(tuple(map(float, steps)), tuple(losses), rows, seed)


def _move(model: nn.Module, start: Direction, *along: tuple[float, Direction]) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(start[name])
            for step, direction in along:
                weight.add_(direction[name], alpha=step)
