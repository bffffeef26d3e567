"""Weights that autocast would cast at every pass, cast at the first.

It wraps a frozen model's pass. Autocast remembers the casts of weights that
are trained, and those only until its block ends, which is the end of the step; a frozen model's are made again at every
pass. The values are the same. They take half the room of the weights, beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel

# Layers whose weights take part in nothing but operations that autocast casts for, on every device.
_CAST = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class _State(NamedTuple):
    """What tells a parameter's values from others, short of reading them."""

    pointer: int
    version: int
    type: torch.dtype
    cast_to: torch.dtype


class CastOnce:
    """A frozen model's weights in autocast's type.

    Args:
        model: no parameter of it is trained: an optimiser may change weights without a trace.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        # One that is replaced later is cast by autocast as ever.
        self._layers = [module for module in model.modules() if type(module) in _CAST]
        self._known: dict[nn.Parameter, tuple[_State, nn.Parameter]] = {}

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Inside, under autocast, the model's layers have cast weights; without autocast their own."""
        device = self.model.device.type
        if not torch.is_autocast_enabled(device):
            yield
            return
        dtype = torch.get_autocast_dtype(device)
        replaced: list[tuple[dict[str, nn.Parameter | None], str, nn.Parameter]] = []
        try:
            for layer in self._layers:
                for name, parameter in layer._parameters.items():
                    if parameter is not None and parameter.dtype == torch.float32:
                        replaced.append((layer._parameters, name, parameter))
                        layer._parameters[name] = self._cast(parameter, dtype)
            yield
        finally:
            for parameters, name, parameter in replaced:
                parameters[name] = parameter

    def _cast(self, parameter: nn.Parameter, dtype: torch.dtype) -> nn.Parameter:
        state = _State(parameter.data_ptr(), parameter._version, parameter.dtype, dtype)
        known = self._known.get(parameter)
        if known is None or known[0] != state:
            low = nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
            known = self._known[parameter] = (state, low)
        return known[1]
