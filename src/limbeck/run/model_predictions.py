"""A finished model's predictions on an encoded split, row by row. Part of `limbeck.run`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from datasets import Dataset
from transformers import PretrainedConfig, PreTrainedModel

from limbeck.activations import Request, capture
from limbeck.data import Collator, batches_of
from limbeck.evaluation.measuring import Pixels, Size
from limbeck.students import labels_of
from limbeck.support.machine import device
from limbeck.tasks import Processor, Task, TaskType, as_array, join
from limbeck.tasks.rules import USUAL, thresholds_of
from limbeck.vision import side_of

_BATCH = 64


def example_size(encoded: Dataset, processor: Processor, kind: TaskType) -> Size:
    """What FLOPs and latency are measured at: the mean tokens of an example, or an image's size."""
    lengths = kind.reads.lengths(encoded)
    if lengths is None:
        return Pixels(*side_of(processor))
    return max(round(float(np.mean(lengths))), 1)


def compact_outputs_of(model: PreTrainedModel, encoded: Dataset, collate: Collator) -> np.ndarray:
    """What the kind keeps of each example, in the split's order; on an accelerator if there is one."""
    model.eval().to(device())
    found = []
    with torch.no_grad():
        for batch in batches_of(encoded, collate, _BATCH, model.device):
            logits = capture(model, batch, Request.of_logits()).logits
            assert logits is not None
            found.append(as_array(collate.kind.compact_outputs(model, batch, logits)))
    return join(found)


# What a model was shipped with that decides how rows are read or scored: thresholds, prompts.


def decided_by(task: Task, config: PretrainedConfig) -> Task:
    """The task as a model has it: with its prompts, and of several labels a row its thresholds, ½ where it has none.

    Raises:
        LimbeckError: thresholds that are none.
    """
    task = replace(task, kind=task.kind.of_model(config))
    if not task.kind.several_classes:
        return task
    return replace(task, thresholds=thresholds_of(config) or USUAL)


def thresholds_by_class(config: PretrainedConfig) -> dict[str, float] | None:
    """A model's thresholds by the names of its classes; None where it has none."""
    found = thresholds_of(config)
    return None if found is None else dict(zip(labels_of(config), found, strict=True))
