"""The least important layers of a model: the layers that hardly rotate the hidden states that they read.

Part of `limbeck.students`. The distance follows Gromov et al. 2024 ("The Unreasonable Ineffectiveness of the Deeper
Layers"), for each layer separately, as Men et al. 2024 (ShortGPT) rank layers by a cosine.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import Request, capture, number_of_layers
from limbeck.activations.request import StackName
from limbeck.students import configuration
from limbeck.students.build import Layers, pick_layers, wanted_layers
from limbeck.support.machine import device_of, evaluating

log = logging.getLogger(__name__)

PICKED = "picked_layers"
"""Entry of a student's configuration: by stack the layers that its rows picked."""


def important_layers(
    model: PreTrainedModel, layers: Layers, batches: Iterable[Mapping[str, Tensor]]
) -> dict[str, list[int]]:
    """Choose the layers that turn hidden states most on some rows.

    Args:
        model: the source of the layers.
        layers: how many of each stack, as for `build_student`, which takes the returned value instead.
        batches: inputs, such as training rows.

    Returns:
        By stack the layers that stay, 1-based and ascending.

    Raises:
        LimbeckError: layers that do not exist.
    """
    batches = list(batches)
    chosen = {}
    for stack, kept in wanted_layers(model.config, layers).items():
        total = configuration.layer_count(model.config, stack)
        if isinstance(kept, int):
            pick_layers("first", kept, total)  # raises an error for a number that does not exist
            angles = turns(model, batches, stack)
            kept = [number + 1 for number in angles.topk(kept).indices.tolist()]
            said = ", ".join(f"{angle:.2f}" for angle in angles.tolist())
            log.info(
                "layers %s of %s stay: hidden states turn by %s of π", sorted(kept), stack, said
            )
        chosen[stack] = pick_layers(kept, None, total)
    return chosen


def turns(
    model: PreTrainedModel, batches: Sequence[Mapping[str, Tensor]], stack: str = "main"
) -> Tensor:
    """Mean angle between each real token's hidden state before and after each layer, (layers,), as a share of π."""
    layers = number_of_layers(model, stack)
    angles, tokens = torch.zeros(layers, dtype=torch.float64), 0
    asked = Request.hidden(range(layers + 1), stack=cast("StackName", stack))
    with evaluating(model):
        for batch in batches:
            on = {name: value.to(device_of(model)) for name, value in batch.items()}
            trace = capture(model, on, asked)
            states = torch.stack(
                [trace.values[key][trace.mask(stack)] for key in sorted(trace.values)]
            )
            cosines = torch.cosine_similarity(states[1:].double(), states[:-1].double(), dim=-1)
            angles += cosines.clamp(-1, 1).arccos().sum(1).cpu()
            tokens += states.shape[1]
    return angles / max(tokens, 1) / math.pi
