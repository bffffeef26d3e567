"""Where a model keeps its layers and its attention, found once.

`capture` looks a model up here; the result is kept per model
(weakly) and found again only when its layers have changed.
"""

from __future__ import annotations

import weakref

from torch import nn
from transformers import PreTrainedModel

from limbeck.activations.explore import Anatomy, LayerStack, explore
from limbeck.support.errors import LimbeckError, Problem

# By id, taken out when the model is freed: torch.compile guards an entry of a plain dictionary
# by its number alone, but all entries of a WeakKeyDictionary, which other models come and go from.
_anatomies: dict[int, Anatomy] = {}


def anatomy_of(model: PreTrainedModel) -> Anatomy:
    """The model's stacks; looked up once per model and again when its layers have changed.

    Raises:
        LimbeckError: not a transformers model, wrapped in `nn.DataParallel` or DDP, or no layers
            found.
    """
    anatomy = known_anatomy(model)
    if anatomy is None:
        refuse_wrapped(model)
        if id(model) not in _anatomies:
            weakref.finalize(model, _anatomies.pop, id(model), None).atexit = False
        anatomy = _anatomies[id(model)] = explore(model)
    return anatomy


def known_anatomy(model: PreTrainedModel) -> Anatomy | None:
    """The anatomy found before, None if there is none or the model's layers have changed since."""
    anatomy = _anatomies.get(id(model))
    if anatomy is None or not all(stack.is_current() for stack in anatomy.stacks.values()):
        return None
    return anatomy


def stack_of(model: PreTrainedModel, name: str = "main") -> LayerStack:
    """The stack called `main`, `encoder`, `decoder` or `cross` (the decoder).

    Raises:
        LimbeckError: the model has no such stack; the message lists those it has.
    """
    anatomy = anatomy_of(model)
    if name not in anatomy.stacks:
        raise LimbeckError(absent_stack(model, anatomy, name))
    return anatomy.stacks[name]


def absent_stack(model: PreTrainedModel, anatomy: Anatomy, name: str) -> Problem:
    """That a model has no stack of that name, and which it has."""
    kind = type(model).__name__
    if anatomy.stacks:
        return Problem(f"{kind} has no stack {name!r}", f"choices: {', '.join(anatomy.stacks)}")
    if anatomy.absent is not None:
        return anatomy.absent
    return Problem(
        f"{kind} has no stack of layers over tokens: of a convolutional or pyramid network only the "
        "logits can be captured",
        "compare the logits (method kd or kd-soft), or take models such as ViT",
    )


def refuse_wrapped(model: nn.Module) -> None:
    """Raise a LimbeckError for anything but a bare transformers model."""
    if isinstance(model, nn.DataParallel):
        raise LimbeckError(
            "nn.DataParallel runs copies of the model, which cannot be captured",
            "use one process per device (torchrun), or set CUDA_VISIBLE_DEVICES to one device",
        )
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise LimbeckError(
            "capture was given the DistributedDataParallel wrapper, which must be the outer one",
            "capture inside the module that DistributedDataParallel wraps",
        )
    if not isinstance(model, PreTrainedModel):
        raise LimbeckError(
            f"cannot capture a {type(model).__name__}: it is not a transformers PreTrainedModel",
            "pass the transformers model itself",
        )
