"""Adam as BERT was trained with: the optimiser of many releases of its time. Part of `limbeck.training`.

No library that limbeck uses has it: torch's AdamW always corrects the bias of its averages, and clips
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT


class BertAdam(torch.optim.Optimizer):
    """Adam without bias correction, with decoupled weight decay and every tensor clipped by itself.

    Of a parameter p with gradient g, first scaled down to the norm `max_tensor_norm` where it is
    longer: m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², p ← p − lr·(m / (√v + ε) + decay·p). The averages
    start at 0 and are not corrected for it, so that first steps are about three times as long as
    Adam's. Devlin et al. 2019, `AdamWeightDecayOptimizer`; the clipping is that of its PyTorch ports.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        betas: shares of the two averages that stay.
        eps: ε, added to the root.
        weight_decay: decay of the weights.
        max_tensor_norm: the norm each tensor's gradient is clipped to; 0: not at all.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        max_tensor_norm: float = 1.0,
    ) -> None:
        settings = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "max_tensor_norm": max_tensor_norm,
        }
        super().__init__(params, settings)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step; parameters without a gradient stay as they are, and so do their averages."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)
        return loss

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        if group["max_tensor_norm"] > 0:
            norm = torch.linalg.vector_norm(gradient)
            gradient = gradient * (group["max_tensor_norm"] / (norm + _TINY)).clamp(max=1.0)
        keep, keep_squares = group["betas"]
        average = state["exp_avg"].lerp_(gradient, 1 - keep)
        squares = state["exp_avg_sq"].mul_(keep_squares)
        squares.addcmul_(gradient, gradient, value=1 - keep_squares)
        update = average / squares.sqrt().add_(group["eps"])
        if group["weight_decay"]:
            update.add_(parameter, alpha=group["weight_decay"])
        parameter.sub_(update, alpha=float(group["lr"]))


# As torch.nn.utils.clip_grad_norm_ has it.
_TINY = 1e-6
