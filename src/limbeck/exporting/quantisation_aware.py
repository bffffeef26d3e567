"""Quantisation-aware distillation: a short last stage in which a model learns to live with int8.

A copy of the model computes with weights and activations rounded as ONNX Runtime's dynamic int8 rounds
them (Jacob et al. 2018, §3: rounded forward, gradients straight through), and learns the float model's
own logits on training rows. Its float weights then lose less when they are quantised in earnest.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel

from limbeck.activations import Request, capture
from limbeck.runtimes.manifest import Conversion
from limbeck.scoring.gate_rows import GateRows
from limbeck.tasks import SoftRule

BATCH = 16
_LEVELS = 127
_SMALLEST = 1e-12


class RoundedWeight(nn.Module):
    """A weight rounded to int8, symmetric around 0; one scale, or one for each output (row).

    `levels`: the largest whole number: 127, or 63 of 7-bit weights.
    """

    def __init__(self, *, per_channel: bool, levels: int) -> None:
        super().__init__()
        self.per_channel, self.levels = per_channel, levels

    def forward(self, weight: Tensor) -> Tensor:
        """The weight as int8 holds it."""
        sizes = weight.detach().abs()
        if not self.per_channel:
            scale = (sizes.max() / self.levels).clamp(min=_SMALLEST)
            zero = torch.zeros(1, dtype=torch.int32)
            return torch.fake_quantize_per_tensor_affine(
                weight, scale.reshape(1), zero, -self.levels, self.levels
            )
        scales = (sizes.flatten(1).amax(1) / self.levels).clamp(min=_SMALLEST)
        zeros = torch.zeros(len(weight), dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(
            weight, scales, zeros, 0, -self.levels, self.levels
        )


class RoundedTable(nn.Module):
    """An embedding table rounded as activations are: one scale, 256 steps from its least to its largest."""

    def forward(self, weight: Tensor) -> Tensor:
        """The table as int8 holds it."""
        return rounded(weight)


def rounded(values: Tensor) -> Tensor:
    """Activations rounded to 256 steps between their own least and largest, 0 among them."""
    low = values.detach().amin().clamp(max=0.0)
    high = values.detach().amax().clamp(min=0.0)
    scale = ((high - low) / 255).clamp(min=_SMALLEST)
    zero = (-low / scale).round().clamp(0, 255).to(torch.int32)
    return torch.fake_quantize_per_tensor_affine(values, scale.reshape(1), zero.reshape(1), 0, 255)


@contextmanager
def rounding(model: nn.Module, how: Conversion) -> Iterator[None]:
    """Inside, every linear layer and embedding table of a model computes as int8 would."""
    levels = _LEVELS // 2 if how.reduce_range else _LEVELS
    handles, changed = [], []
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            linear = isinstance(module, nn.Linear)
            weight = (
                RoundedWeight(per_channel=how.per_channel, levels=levels)
                if linear
                else RoundedTable()
            )
            parametrize.register_parametrization(module, "weight", weight)
            changed.append(module)
            if linear:
                handles.append(module.register_forward_pre_hook(_round_input))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        for module in changed:
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=False)


def _round_input(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    return (rounded(given[0]), *given[1:])


def recovered(
    model: PreTrainedModel,
    rows: GateRows,
    how: Conversion,
    *,
    steps: int,
    lr: float,
    seed: int = 0,
    step: Callable[[int], None] = lambda done: None,
) -> PreTrainedModel:
    """A copy of the model that has learned its own logits under int8, in float32.

    Args:
        model: the float model, which teaches; it stays as it is.
        rows: where the training rows are.
        how: the conversion to prepare for.
        steps: optimisation steps of 16 rows; `lr` their rate (AdamW, linear decay).
        seed: of the order of the rows.
        step: called with 1 after each.

    Raises:
        LimbeckError: the rows' source has no training rows.
    """
    student = copy.deepcopy(model).eval()
    kind = rows.task.kind
    weights = [weight for weight in student.parameters() if weight.requires_grad]
    with rounding(student, how):
        optimizer = torch.optim.AdamW(weights, lr=lr, weight_decay=0.0)
        decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=steps)
        for batch in rows.shuffled_batches(steps, BATCH, seed):
            with torch.no_grad():
                wanted = capture(model, batch, Request.of_logits()).logits
            found = capture(student, batch, Request.of_logits()).logits
            assert wanted is not None
            assert found is not None
            loss = kind.soft_label(found, wanted, batch, SoftRule("soft_kl"))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(weights, 1.0)
            optimizer.step()
            decay.step()
            step(1)
    return student.eval()
