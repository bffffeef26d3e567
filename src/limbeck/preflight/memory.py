"""Memory of a training at its peak, from the memory that one pass over two examples keeps: `limbeck.preflight`."""

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from limbeck.support.cores import anonymous_bytes
from limbeck.support.errors import Problem

_EXAMPLES = 2
# The logits of both sides, and in the backward pass the gradients of two terms.
_LOGITS = 4
_FLOAT = 4
# Gradients, and the optimizer's numbers for each weight.
_FLOATS = {"adamw": 3, "bert_adam": 3, "sgd": 2}


@dataclass(frozen=True)
class Step:
    """The inputs of a step, and its precision.

    Attributes:
        examples: examples of a pass.
        tokens: the length of the longest example.
        bf16: whether matrix products are in bf16.
        optimizer: by its name in a recipe.
        again: whether activations are computed again in the backward pass.
    """

    examples: int
    tokens: int
    bf16: bool
    optimizer: str
    again: bool


class _Held:
    """A tensor that a graph holds for its backward pass."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def note_of(
    student: Any,
    teachers: list[nn.Module],
    terms: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]],
    batch: Mapping[str, Tensor],
    step: Step,
) -> Problem:
    """Estimate the peak for a language model; with terms as in pre-flight, whose random state is left as it was."""
    few = {name: column[:_EXAMPLES] for name, column in batch.items()}
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        layers, logits = _kept(student, terms, few, step)
    tokens, config = step.examples * step.tokens, student.config
    share = tokens / few["input_ids"].numel()
    width = 2 if step.bf16 else _FLOAT
    logits = logits * share + _LOGITS * width * tokens * config.vocab_size
    # Each layer's input stays, and one layer at a time is computed again.
    depth = max(config.num_hidden_layers, 1)
    fewer = layers * share / depth + width * tokens * config.hidden_size * depth
    learned = sum(one.numel() for one in student.parameters() if one.requires_grad)
    loaded = _loaded([student, *teachers], student.device)
    state = _FLOAT * learned * _FLOATS.get(step.optimizer, 3)
    passes, other = layers * share + logits, fewer + logits
    if step.again:
        passes, other = other, passes
    other_way = "false" if step.again else "true"
    return Problem(
        f"memory: about {_gb(loaded + state + passes)} at the peak of training: {_gb(loaded)} now, {_gb(state)} for "
        f"gradients and optimizer, {_gb(passes)} for {step.examples} texts of {step.tokens} tokens "
        f"({_gb(other)} with activation_checkpointing={other_way})",
        "a smaller batch_size with accumulation saves the most",
        "note",
    )


def _kept(student: Any, terms: Any, batch: Mapping[str, Tensor], step: Step) -> tuple[float, float]:
    """Bytes that a pass keeps for layers, and for logits over the vocabulary."""
    held: weakref.WeakSet[_Held] = weakref.WeakSet()
    own = {one.untyped_storage().data_ptr() for one in _tensors(student)}

    def pack(tensor: Tensor) -> Any:
        one = _Held(tensor)
        held.add(one)
        return one

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one.tensor)
    with hooks, torch.autocast(student.device.type, torch.bfloat16, enabled=step.bf16):
        values = terms(batch)
    found = {one.tensor.untyped_storage().data_ptr(): one.tensor for one in held}
    vocabulary = student.config.vocab_size
    sizes = {True: 0.0, False: 0.0}
    for place, tensor in found.items():
        if place not in own:
            sizes[tensor.shape[-1:] == (vocabulary,)] += tensor.untyped_storage().nbytes()
    del values
    return sizes[False], sizes[True]


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def _loaded(models: list[nn.Module], device: torch.device) -> float:
    """Bytes in use before training on the accelerator or in this process, at least the weights."""
    if device.type == "cuda":
        return float(torch.cuda.memory_allocated(device))
    weights = sum(one.numel() * one.element_size() for model in models for one in _tensors(model))
    return float(max(weights, anonymous_bytes() or 0))


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
