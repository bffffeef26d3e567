"""A device without numbers: PyTorch's `meta`, whose tensors have shapes alone. To read one raises, and
what is sent there is named; on an accelerator either would stop a step.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import transformers.masking_utils
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from limbeck.support.step_state import StepState

META = torch.device("meta")


class Sent(TorchFunctionMode):
    """Names what makes tensors of the device out of the host's numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        made = function in (torch.tensor, torch.as_tensor)
        if function in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            places = args[1] if isinstance(args[1], tuple) else (args[1],)
            made = any(isinstance(place, list | np.ndarray) for place in places)
        if made and isinstance(out, torch.Tensor) and out.device == META:
            self.found.append(function.__name__)
        return out


def tensors(values: Iterable[object]) -> Iterator[torch.Tensor]:
    """Those among values, and within lists of them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors(value)


def _described(value: object) -> Hashable:
    """All of a value that the shape of a result can depend on; raises TypeError where that is not known."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype, value.device
    if isinstance(value, list | tuple):
        return tuple(map(_described, value))
    hash(value)
    return type(value), value


@functools.cache
def _makes_its_own(function: torch._ops.OpOverload) -> bool:
    """It returns neither a view nor what it was given."""
    schema = function._schema
    return not any(one.alias_info for one in (*schema.arguments, *schema.returns))


class Shapes:
    """Tensors without numbers as results: PyTorch works shapes out in Python, so each is worked out once."""

    def __init__(self) -> None:
        self.known: dict[Hashable, tuple | None] = {}

    def __call__(self, function, args, kwargs):
        given = [*tensors(args)]
        # Of single numbers alone the type depends on where they come from.
        if not (
            _makes_its_own(function) and any(one.dim() and one.device == META for one in given)
        ):
            return function(*args, **kwargs)
        try:
            key = function, _described(args), _described([*kwargs.items()])
        except TypeError:
            return function(*args, **kwargs)
        if (known := self.known.get(key)) is not None:
            shape, stride, dtype = known
            return torch.empty_strided(shape, stride, dtype=dtype, device=META)
        out = function(*args, **kwargs)
        if isinstance(out, torch.Tensor) and out.device == META:
            self.known[key] = out.shape, out.stride(), out.dtype
        return out


_shapes = Shapes()


class Crossing(TorchDispatchMode):
    """Names what reads tensors of the host, but for single numbers, and answers on the device."""

    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = _shapes(function, args, kwargs or {})
        at_home = any(value.device != META and value.dim() > 0 for value in tensors(args))
        if at_home and any(value.device == META for value in tensors([out])):
            self.found.append(function.overloadpacket.__name__)
        return out


@contextmanager
def numbers_are_told_apart():
    """Reading raises; sending is named. Three things are as on no accelerator:

    transformers asks of a mask whether all of it is real, but not where a graph is recorded; and
    this device has neither generators nor autocast.
    """
    autocast = torch.autocast
    with pytest.MonkeyPatch.context() as patch, Sent() as sent, Crossing(sent.found):
        patch.setattr(transformers.masking_utils, "is_tracing", lambda *_: True)
        patch.setattr(StepState, "device_generator", lambda *_: None)
        patch.setattr(torch, "is_autocast_enabled", lambda *_: False)
        patch.setattr(torch, "autocast", lambda *_, **__: autocast("cpu", enabled=False))
        yield sent.found
