"""How a model bears noise on its embeddings. Part of `limbeck.lab.measures`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.lab.measures.layer_probing import Progressed, nobody


@dataclass(frozen=True)
class NoisePoint:
    """A model under noise of one standard deviation; by draw, so that its spread is seen.

    Attributes:
        deviation: of the noise on each number of an embedding.
        scores: primary scores, 0 to 100, one for each draw.
        losses: mean losses of the labels, likewise.
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
        metric: what the scores are.
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
        progressed: is told how many scorings are done.
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
    """Inside the block N(0, deviation²) is added to what the input embeddings give."""
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
