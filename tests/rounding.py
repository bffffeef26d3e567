"""Arithmetic that rounds otherwise, as another processor's does.

Processors differ in the order in which they add up a matrix product and in their instructions for it. Both amount to
operands that are off in their last bit (the backward error of a sum), so that is what is done here: in float32 and
float64 the last bit of a pseudorandom half of an operand's numbers is flipped, of lower precisions that of the result.
Which half is a function of the number, its place, the shapes and a seed: the same call always gives the same answer, as
on one processor; one of another shape (more padding, other batches) rounds in other places, and so do equal rows of one
batch, as where a kernel takes the last rows of a matrix by other instructions.

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
_ROUNDED = {
    _ATEN.mm: 0,
    _ATEN.addmm: 1,
    _ATEN.bmm: 0,
    _ATEN.baddbmm: 1,
    _ATEN.convolution: 0,
    _ATEN.convolution_backward: 0,
    _ATEN._softmax: 0,
    _ATEN.native_layer_norm: 0,
    _ATEN.gelu: 0,
    _ATEN._scaled_dot_product_flash_attention_for_cpu: 0,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: 0,
}
"""What rounds, and which of its arguments is changed: of a sum with a bias, the rows and not the bias."""


def flip_last_bits(values: Tensor, seed: int) -> Tensor:
    """The same numbers, about half of them one unit in the last place away; 0, inf and NaN stay."""
    kind = _AS_INTEGER.get(values.dtype) or _LOW.get(values.dtype)
    if kind is None or values.device.type == "meta" or not values.numel():
        return values
    values = values.contiguous()
    bits = values.view(kind)
    place = torch.arange(bits.numel()).to(kind).view(bits.shape)
    # Wraps round; only its spread matters.
    mixed = (bits >> 3) * 40503 + bits * 31 + place * 2749 + seed
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
        if torch.is_inference_mode_enabled():
            # There `linear` and its like arrive whole, elsewhere as the products that they consist of.
            with self:
                found = function.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        # What is traced for an export has shapes and no numbers.
        traced = any(isinstance(one, FakeTensor | FunctionalTensor) for one in args)
        at = _ROUNDED.get(function.overloadpacket)
        if at is None or traced or not isinstance(args[at], Tensor):
            return function(*args, **kwargs)
        shapes = [tuple(one.shape) for one in args if isinstance(one, Tensor)]
        seed = zlib.crc32(f"{self.seed} {function} {shapes}".encode()) & 0x7FFF
        if args[at].dtype in _LOW:
            found = function(*args, **kwargs)
            if isinstance(found, Tensor):
                return flip_last_bits(found, seed)
            return (flip_last_bits(found[0], seed), *found[1:])
        changed = [flip_last_bits(a, seed) if place == at else a for place, a in enumerate(args)]
        return function(*changed, **kwargs)
