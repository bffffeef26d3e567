"""What an optimiser, a schedule or a generator remembers, as safetensors and JSON.

Part of `limbeck.training`. Stock checkpoints pickle it, and what is pickled may run code when it is
read. Here tensors lie in a safetensors file and all else, as JSON, in that file's header; numbers
come back bit for bit.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from limbeck.support.errors import LimbeckError
from limbeck.support.machine import accelerator

_HEADER = "state"
_PLAIN = (bool, int, float, str, type(None))


def write_state(path: Path, state: Any) -> None:
    """Write dicts, lists, tuples, counters, numbers, text and tensors, nested in any way.

    Raises:
        LimbeckError: something else is among them.
    """
    tensors: dict[str, Tensor] = {}
    header = json.dumps(_pack(state, tensors, path))
    save_file(tensors, path, metadata={_HEADER: header})


def read_state(path: Path) -> Any:
    """What `write_state` was given; tensors are on the CPU."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return _unpack(json.loads(file.metadata()[_HEADER]), tensors)


def _pack(value: Any, tensors: dict[str, Tensor], path: Path) -> Any:
    """As JSON can keep it: what is not plain is a list whose first item says what it was."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        # Its own memory: safetensors refuses tensors that share theirs.
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return ["tensor", name]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        form = "counter" if isinstance(value, Counter) else "dict"
        return [
            form,
            [[_pack(k, tensors, path), _pack(v, tensors, path)] for k, v in value.items()],
        ]
    if isinstance(value, list | tuple):
        form = "list" if isinstance(value, list) else "tuple"
        return [form, [_pack(item, tensors, path) for item in value]]
    raise LimbeckError(
        f"{path.name}: a {type(value).__name__} is neither number, text nor tensor, and checkpoints "
        "hold nothing that would have to be unpickled",
        "train with save_strategy='no', or with an optimizer and a schedule of torch",
    )


def _unpack(value: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(value, list):
        return value
    form, content = value
    if form == "tensor":
        return tensors[content]
    if form in ("dict", "counter"):
        pairs = {_unpack(k, tensors): _unpack(v, tensors) for k, v in content}
        return Counter(pairs) if form == "counter" else pairs
    items = [_unpack(item, tensors) for item in content]
    return items if form == "list" else tuple(items)


# ---- generators ----


def generators(every_device: bool) -> dict[str, Any]:
    """The states of Python's, numpy's and torch's generators, those of the accelerator included.

    With `every_device` those of all accelerators that this process sees, else the current one's.
    """
    kind, keys, *rest = np.random.get_state()
    state = {
        "python": random.getstate(),
        "numpy": (kind, np.asarray(keys).tolist(), *rest),
        "cpu": torch.random.get_rng_state(),
    }
    module = _accelerator()
    if module is not None:
        states = module.get_rng_state_all() if every_device else [module.get_rng_state()]
        state["accelerator"] = states
    return state


def restore_generators(state: dict[str, Any], every_device: bool) -> None:
    """Put the generators where `generators` found them, as far as this machine has them."""
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.random.set_rng_state(state["cpu"])
    module, known = _accelerator(), state.get("accelerator")
    if module is None or not known:
        return
    if not every_device:
        module.set_rng_state(known[0])
    elif len(known) == module.device_count():
        module.set_rng_state_all(known)


def _accelerator() -> Any:
    found = accelerator()
    return None if found is None else torch.get_device_module(found)
