"""The loss around a trained model, in random directions or towards two others. Part of `limbeck.lab.measures`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.lab.measures.layer_probing import Progressed, nobody

Direction = dict[str, Tensor]


@dataclass(frozen=True)
class Corner:
    """A model whose weights span a plane: its name, its place in steps, its loss there."""

    name: str
    at: tuple[float, float]
    loss: float


@dataclass(frozen=True)
class LossSurface:
    """Losses on a square of weights around a model's own.

    Attributes:
        steps: how far along either direction, in filters' norms or in ways to another model; 0 is the model itself.
        losses: by step along the second direction (outer) and along the first.
        rows: how many the loss is over.
        seed: of random directions.
        corners: of a plane through three models those three, the model itself first; of random directions none.
    """

    steps: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]
    rows: int
    seed: int = 0
    corners: tuple[Corner, ...] = ()

    @property
    def own(self) -> float:
        """The model's own loss."""
        if self.corners:
            return self.corners[0].loss
        middle = len(self.steps) // 2
        return self.losses[middle][middle]


def filter_normalised_direction(model: nn.Module, generator: torch.Generator) -> Direction:
    """A random direction, each filter as long as the model's own (Li et al. 2018, §4).

    A filter is the part of a weight for one output: a row of a matrix, of a table of embeddings, a kernel. Biases
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

    The model's weights are as before afterwards.

    Args:
        model: whose weights are moved.
        loss: the loss of some rows with the weights that the model has at the moment.
        rows: how many these are.
        points: along either direction; odd, so that the model itself is among them.
        span: the largest step, in filters' norms.
        seed: of the directions.
        progressed: called with the number of losses that are done.

    Raises:
        ValueError: an even number of points, or fewer than 3.
    """
    if points < 3 or points % 2 == 0:
        raise ValueError(f"{points} points along a direction: an odd number from 3 on is needed")
    generator = torch.Generator().manual_seed(seed)
    first, second = (filter_normalised_direction(model, generator) for _ in range(2))
    steps = np.linspace(-span, span, points)
    steps[points // 2] = 0.0
    places = [(float(a), float(b)) for b in steps for a in steps]
    found = _losses(model, first, second, places, loss, progressed)
    return LossSurface(tuple(map(float, steps)), _rows(found, points), rows, seed)


def loss_plane(
    model: nn.Module,
    others: Mapping[str, Mapping[str, Tensor]],
    loss: Callable[[], float],
    *,
    rows: int,
    name: str = "the model",
    points: int = 9,
    span: float = 1.0,
    progressed: Progressed = nobody,
) -> LossSurface:
    """L(θ0 + a(θ1 − θ0) + b(θ2 − θ0)), the plane through three models' weights (CR-ILD, Figure 10).

    The models are at (0, 0), (1, 0) and (0, 1), and their losses there are always measured. The model's
    weights are as before afterwards.

    Args:
        model: θ0, whose weights are moved.
        others: θ1 and θ2: name → weights, as `weights_of` returns them.
        loss: the loss of some rows with the weights that the model has at the moment.
        rows: how many these are.
        name: the model's name.
        points: along either direction.
        span: how far the plane reaches beyond the models, in ways from the first to another.
        progressed: called with the number of losses that are done.

    Raises:
        ValueError: not two others, one whose weights have other names or shapes, or fewer than 3 points.
    """
    if len(others) != 2:
        raise ValueError(
            f"a plane goes through three models: two others are needed, not {len(others)}"
        )
    if points < 3:
        raise ValueError(f"{points} points along a direction: 3 or more are needed")
    own = weights_of(model)
    directions = []
    for other, weights in others.items():
        if unlike := _unlike(own, weights):
            raise ValueError(f"{other} is another kind of model: {unlike}")
        with torch.no_grad():
            directions.append(
                {key: weights[key].to(weight) - weight for key, weight in own.items()}
            )
    first, second = directions
    steps = [float(step) for step in np.linspace(-span, 1 + span, points)]
    at = [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0)]
    places = at + [(a, b) for b in steps for a in steps]
    found = _losses(model, first, second, places, loss, progressed)
    corners = map(Corner, (name, *others), at, found)
    return LossSurface(tuple(steps), _rows(found[3:], points), rows, corners=tuple(corners))


def weights_of(model: nn.Module) -> Direction:
    """Every parameter, and every buffer that is no count, by name."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: weight.detach() for name, weight in named if weight.is_floating_point()}


def _unlike(own: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> str:
    """In what two models' weights differ but for their values; empty where in nothing."""
    if apart := sorted(own.keys() ^ other.keys()):
        return f"only one of the two has {apart[0]}"
    shapes = {key: (tuple(own[key].shape), tuple(other[key].shape)) for key in own}
    different = [f"{key} is {b} and not {a}" for key, (a, b) in shapes.items() if a != b]
    return different[0] if different else ""


def _losses(
    model: nn.Module,
    first: Direction,
    second: Direction,
    places: Sequence[tuple[float, float]],
    loss: Callable[[], float],
    progressed: Progressed,
) -> list[float]:
    """The loss at each place, as steps along both directions."""
    start = {name: weight.clone() for name, weight in weights_of(model).items()}
    found = []
    try:
        for done, (a, b) in enumerate(places, start=1):
            _move(model, start, (a, first), (b, second))
            found.append(loss())
            progressed(done, len(places))
    finally:
        _move(model, start)
    return found


def _rows(found: Sequence[float], points: int) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(found[at : at + points]) for at in range(0, len(found), points))


def _move(model: nn.Module, start: Direction, *along: tuple[float, Direction]) -> None:
    with torch.no_grad():
        for name, weight in weights_of(model).items():
            weight.copy_(start[name])
            for step, direction in along:
                if name in direction:
                    weight.add_(direction[name], alpha=step)


# A model's robustness to noise on its embeddings.


@dataclass(frozen=True)
class NoisePoint:
    """A model under noise of one standard deviation; by draw, so that its spread is seen.

    Attributes:
        deviation: of the noise on each number of an embedding.
        scores: primary scores, 0 to 100, one for each draw.
        losses: mean losses of the labels, one for each draw.
    """

    deviation: float
    scores: tuple[float, ...]
    losses: tuple[float, ...]


@dataclass(frozen=True)
class NoiseTolerance:
    """A model's score by the noise on its embeddings.

    Attributes:
        points: by rising standard deviation; 0 has one draw.
        rows: how many were scored.
        metric: the name of the scores.
    """

    points: tuple[NoisePoint, ...]
    rows: int
    metric: str


def noise_tolerance(
    model: PreTrainedModel,
    scored: Callable[[], tuple[float, float]],
    deviations: Sequence[float],
    *,
    rows: int,
    metric: str,
    repeats: int = 3,
    seed: int = 0,
    progressed: Progressed = nobody,
) -> NoiseTolerance:
    """Score a model while N(0, σ²I) is added to its input embeddings (CR-ILD, §3.2, Figures 4 and 8).

    The noise of a draw is the same for every σ but for its scale, so that curves are smooth.

    Args:
        model: whose input embeddings are disturbed.
        scored: runs the model over some rows; their primary score (0 to 100) and mean loss.
        deviations: values of σ, in the unit of the embeddings.
        rows: how many `scored` runs over.
        metric: what its score is.
        repeats: draws for each σ above 0.
        seed: of the first draw; the following ones count from it.
        progressed: called with the number of scorings that are done.
    """
    asked = [(sigma, repeats if sigma > 0 else 1) for sigma in sorted(set(deviations))]
    total, done = sum(count for _, count in asked), 0
    points = []
    for sigma, count in asked:
        found = []
        for draw in range(count):
            with noisy_embeddings(model, sigma, seed + draw):
                found.append(scored())
            done += 1
            progressed(done, total)
        scores, losses = zip(*found, strict=True)
        points.append(NoisePoint(float(sigma), scores, losses))
    return NoiseTolerance(tuple(points), rows, metric)


@contextmanager
def noisy_embeddings(model: PreTrainedModel, deviation: float, seed: int) -> Iterator[None]:
    """Inside the block N(0, deviation²) is added to the output of the input embeddings."""
    # Noise is made on the CPU: the same on every machine.
    generator = torch.Generator().manual_seed(seed)

    def disturb(module: Any, inputs: Any, output: Tensor) -> Tensor:
        noise = torch.randn(output.shape, generator=generator)
        return output + deviation * noise.to(output)

    handle = model.get_input_embeddings().register_forward_hook(disturb)
    try:
        yield
    finally:
        handle.remove()
