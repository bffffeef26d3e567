"""Run a finished model over encoded rows: outputs that its task type scores, or each layer's vectors.

Part of `limbeck.evaluation`. A model in torch and an exported file by its own runtime are run alike.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import ActivationKey, Request, capture
from limbeck.data import Collator, batches_of
from limbeck.runtimes.sessions import GraphSession
from limbeck.support.machine import device, device_of, evaluating, place
from limbeck.support.settings import Pool
from limbeck.tasks import TaskType, as_array, join

Batch = Mapping[str, Tensor]


@dataclass(frozen=True)
class BatchOutputs:
    """A model's outputs for a batch.

    Attributes:
        batch: its encoded rows.
        logits: (B, C), (B, N, C), or for spans (B, N, 2).
        kept: each row's compact outputs, which the task type scores.
    """

    batch: Batch
    logits: Tensor
    kept: np.ndarray


def outputs_by_batch(
    model: PreTrainedModel | GraphSession, batches: Iterable[Batch], kind: TaskType
) -> Iterator[BatchOutputs]:
    """Run a model in torch, on its device, or an exported one by its runtime."""
    for batch in batches:
        if isinstance(model, GraphSession):
            nothing: Any = None  # compact outputs of logits need no model
            logits = torch.from_numpy(model.logits(batch))
            kept = kind.compact_outputs(nothing, batch, logits)
        else:
            with evaluating(model):
                found = capture(model, batch, Request.of_logits()).logits
                assert found is not None
                logits = found
                kept = kind.compact_outputs(model, batch, logits)
        yield BatchOutputs(batch, logits, as_array(kept))


def compact_outputs_of(model: PreTrainedModel, encoded: Dataset, collate: Collator) -> np.ndarray:
    """The compact outputs of each example, in the split's order; on an accelerator if the machine has one."""
    place(model.eval(), device())
    batches = batches_of(encoded, collate, collate.kind.scored_at_once, device_of(model))
    return join([one.kept for one in outputs_by_batch(model, batches, collate.kind)])


def pooled_states(
    model: PreTrainedModel, layers: Sequence[int], batches: Iterable[Batch], pool: Pool
) -> list[Tensor]:
    """One (n, d) float64 tensor a layer, over all examples, on the CPU; 0 is the embedding output."""
    request = Request.hidden(layers, pool=pool)
    found: list[list[Tensor]] = [[] for _ in layers]
    with evaluating(model):
        for batch in batches:
            trace = capture(model, inputs_of(batch, model), request)
            for layer, states in zip(layers, found, strict=True):
                states.append(trace[ActivationKey("hidden", layer, pool)].double().cpu())
    return [torch.cat(states) for states in found]


def inputs_of(batch: Batch, model: PreTrainedModel) -> dict[str, Tensor]:
    """A batch on the model's device; the row number is bookkeeping of the data, no input of any model."""
    return {name: value.to(device_of(model)) for name, value in batch.items() if name != "index"}
