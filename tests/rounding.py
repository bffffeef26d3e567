"""Arithmetic that rounds otherwise, as another processor's does.

Processors differ in the order in which they add up a matrix product and in their instructions for it. Both amount to
operands that are off in their last bit (the backward error of a sum), so that is what is done here: in float32 and
float64 the last bit of a pseudorandom half of an operand's numbers is flipped, of lower precisions that of the result.
Which half is a function of the number, the shapes and a seed: the same call always gives the same answer, as on one
processor, and one of another shape (more padding, other batches) rounds in other places.

    LIMBECK_TEST_ROUNDING=1 pytest …
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import TorchDispatchMode

_AS_INTEGER = {torch.float64: torch.int64, torch.float32: torch.int32}
_LOW = {torch.bfloat16: torch.int16, torch.float16: torch.int16}
_LOW_DIGITS = {torch.float64: 0xFFFFFF, torch.float32: 0x7FF, torch.bfloat16: 3, torch.float16: 15}

_ATEN = torch.ops.aten
_PRODUCTS = {
    _ATEN.mm,
    _ATEN.addmm,
    _ATEN.bmm,
    _ATEN.baddbmm,
    _ATEN.convolution,
    _ATEN.convolution_backward,
    _ATEN._softmax,
    _ATEN.native_layer_norm,
    _ATEN.gelu,
    _ATEN._scaled_dot_product_flash_attention_for_cpu,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward,
}


def flip_last_bits(values: Tensor, seed: int) -> Tensor:
    """The same numbers, about half of them one unit in the last place away; 0, inf and NaN stay."""
    kind = _AS_INTEGER.get(values.dtype) or _LOW.get(values.dtype)
    if kind is None or values.device.type == "meta" or not values.numel():
        return values
    values = values.contiguous()
    bits = values.view(kind)
    mixed = (bits >> 3) * 40503 + bits * 31 + seed  # wraps round; only its spread matters
    flips = (mixed >> 7) & 1
    # A number of few digits has exact products, whose sum no order changes: integers stay exact.
    keep = torch.isfinite(values) & ((bits & _LOW_DIGITS[values.dtype]) != 0)
    return (bits ^ torch.where(keep, flips, torch.zeros_like(flips)).to(kind)).view(values.dtype)


class RoundsOtherwise(TorchDispatchMode):
    """Inside it, matrix products and what normalises round as another processor might."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # What is traced for an export has shapes and no numbers.
        traced = any(isinstance(one, FakeTensor | FunctionalTensor) for one in args)
        if function.overloadpacket not in _PRODUCTS or traced:
            return function(*args, **kwargs)
        shapes = [tuple(one.shape) for one in args if isinstance(one, Tensor)]
        seed = zlib.crc32(f"{self.seed} {function} {shapes}".encode()) & 0x7FFF
        first = next(one for one in args if isinstance(one, Tensor))
        if first.dtype in _LOW:
            found = function(*args, **kwargs)
            if isinstance(found, Tensor):
                return flip_last_bits(found, seed)
            return (flip_last_bits(found[0], seed), *found[1:])
        changed = [flip_last_bits(a, seed) if a is first else a for a in args]
        return function(*changed, **kwargs)
