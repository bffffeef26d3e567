"""FLOPs of the passes that a model has run (`limbeck.activations.Passes`), padding included.

Each kind of pass is run once more, on one example.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations_with_replacement, product
from math import prod

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from limbeck.activations import Passes, Request, capture
from limbeck.evaluation.architecture import once_for_each
from limbeck.evaluation.measuring import Pixels, measuring, random_inputs

Sizes = tuple[int, ...]

# The backward pass computes two products for each one of the forward pass.
_WITH_BACKWARD = 3


def flops_of(model: PreTrainedModel, passes: Passes) -> int:
    """FLOPs of a model's passes, those of their backward passes included; a multiply-add counts 2.

    Counted as `flops_per_example` counts, for every kind of pass at the sizes it was padded to.
    Terms' own products, of projections or of comparisons, are not the model's and not in it.
    """
    # What is recomputed in the backward pass is another forward pass.
    again = any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    backward = _WITH_BACKWARD + again
    examples: dict[Request, dict[Sizes, int]] = {}
    for kind, count in passes.examples.items():
        sizes = examples.setdefault(kind.request, {})
        sizes[kind.sizes] = sizes.get(kind.sizes, 0) + count * (backward if kind.gradient else 1)
    total = 0.0
    for request, counts in examples.items():
        costs = _costs(model, request, list(counts))
        total += sum(count * costs[sizes] for sizes, count in counts.items())
    return round(total)


def flops_of_pass(model: PreTrainedModel, request: Request, sizes: Sizes) -> int:
    """FLOPs of one forward pass that answers a request about one example of these sizes."""
    return once_for_each(model, (request, sizes), lambda: _flops_of_pass(model, request, sizes))


def _flops_of_pass(model: PreTrainedModel, request: Request, sizes: Sizes) -> int:
    if model.main_input_name == "pixel_values":
        batch = random_inputs(model, Pixels(*sizes))
    else:
        batch = random_inputs(model, sizes[0])
        if len(sizes) > 1:
            batch["decoder_input_ids"] = torch.zeros(
                1, sizes[1], dtype=torch.long, device=model.device
            )
    counter = FlopCounterMode(display=False)
    with measuring(model), sdpa_kernel(SDPBackend.MATH), counter:
        capture(model, batch, request)
    return int(counter.get_total_flops())


def _costs(model: PreTrainedModel, request: Request, wanted: list[Sizes]) -> Mapping[Sizes, float]:
    """FLOPs by sizes: each measured where they are few, else a polynomial through some of them.

    Every product of a transformer is linear in a length or has two of them as sides, so that the
    polynomial of second degree is exact.
    """
    axes = [_spread(sorted(set(axis))) for axis in zip(*wanted, strict=True)]
    if len(wanted) <= prod(map(len, axes)):
        return {sizes: flops_of_pass(model, request, sizes) for sizes in wanted}
    points = list(product(*axes))
    largest = np.array([max(axis) for axis in axes], dtype=float)
    measured = np.array([flops_of_pass(model, request, sizes) for sizes in points], dtype=float)
    fitted, *_ = np.linalg.lstsq(_terms(points, largest), measured, rcond=None)
    found = _terms(wanted, largest) @ fitted
    return dict(zip(wanted, np.round(found).tolist(), strict=True))


def _spread(axis: list[int]) -> list[int]:
    """The smallest, one in the middle and the largest."""
    return sorted({axis[0], axis[len(axis) // 2], axis[-1]})


def _terms(points: list[Sizes], largest: np.ndarray) -> np.ndarray:
    """The monomials of first and second degree, and one, at each point [P, …]."""
    scaled = np.array(points, dtype=float) / largest
    columns = [np.ones(len(points)), *scaled.T]
    columns += [
        scaled[:, one] * scaled[:, other]
        for one, other in combinations_with_replacement(range(scaled.shape[1]), 2)
    ]
    return np.stack(columns, axis=1)
