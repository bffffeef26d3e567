"""What each layer makes of every example, as one vector. Part of `limbeck.evaluation`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import ActivationKey, Request, capture

Pool = Literal["mean", "cls", "last"]


def pooled_states(
    model: PreTrainedModel,
    layers: Sequence[int],
    batches: Iterable[Mapping[str, Tensor]],
    pool: Pool,
) -> list[Tensor]:
    """One (n, d) float64 tensor a layer, over all examples, on the CPU; 0 is the embedding output."""
    request = Request.hidden(layers, pool=pool)
    found: list[list[Tensor]] = [[] for _ in layers]
    with evaluating(model), torch.no_grad():
        for batch in batches:
            trace = capture(model, inputs_of(batch, model), request)
            for layer, states in zip(layers, found, strict=True):
                states.append(trace[ActivationKey("hidden", layer, pool)].double().cpu())
    return [torch.cat(states) for states in found]


def inputs_of(batch: Mapping[str, Tensor], model: PreTrainedModel) -> dict[str, Tensor]:
    """A batch on the model's device; the row number is bookkeeping of the data, no input of any model."""
    return {name: value.to(model.device) for name, value in batch.items() if name != "index"}


@contextmanager
def evaluating(model: PreTrainedModel):
    """The model without dropout inside the block, and as it was after it."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
