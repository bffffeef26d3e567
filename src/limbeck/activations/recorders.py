"""Watchers of one forward pass: put on, set tensors aside, taken off.

Recorders stand inside the model while `capture` runs it. Everything put
on a model (a shadow of forward, the mark of recorded attention, the shortened layer list) is taken
off again, also when the pass fails. Tensors are only set aside, so the model's values and
gradients are the ones it has anyway.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from limbeck.activations.attention_recorder import RECORDER, AttentionCall
from limbeck.activations.masks import full_mask
from limbeck.activations.plan import StackPlan
from limbeck.activations.request import ActivationKey
from limbeck.functional import pool
from limbeck.support.errors import LimbeckError


class StopForward(Exception):  # noqa: N818 (it reports success, not an error)
    """Raised behind the last layer needed, where layers are shared and the list cannot be cut."""


class Recorder:
    """What is set aside of one stack during one forward pass.

    Under no_grad hidden states are pooled at once, so the full ones are freed; with gradients they
    are kept by autograd anyway, and pooling waits, so that gradient checkpointing replays only
    what the model did.
    """

    def __init__(self, part: StackPlan, mask: Tensor | None) -> None:
        self.part = part
        self.mask = mask
        self.hidden: dict[int, Tensor] = {}
        self.pooled: dict[ActivationKey, Tensor] = {}
        self.calls: dict[tuple[int, bool], AttentionCall] = {}
        self.maps: dict[tuple[int, bool], Tensor] = {}
        self.grad = torch.is_grad_enabled()
        self.calls_seen = 0
        self.shadowed: list[tuple[nn.Module, Any]] = []
        self.whole: Any = None
        self.entry: Tensor | None = None

    def run_layer(
        self, layer: int | None, forward: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Stand in for a layer's forward; a shared layer (`layer` None) counts its calls
        instead."""
        self.calls_seen += 1
        layer = self.calls_seen if layer is None else layer
        if layer == 1:
            if self.entry is not None:
                args, kwargs = _exchanged(self.entry, args, kwargs)
            self._entered(args[0] if args else kwargs["hidden_states"])
        output = forward(*args, **kwargs)
        if layer in self.part.hidden and not self.part.stack.is_output(layer):
            index = self.part.stack.output_index
            self._keep(layer, output[index] if isinstance(output, tuple) else output)
        if self.part.stops and self.part.stack.shared and layer == self.part.depth:
            raise StopForward
        return output

    def run_stack(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Stand in for the bare stack's forward: its output is hidden state L after the final
        norm.

        A model that declares nothing was asked for all its hidden states and attentions here.
        """
        output = forward(*args, **kwargs)
        if not self.part.stack.declared:
            for layer in self.part.hidden:
                self._keep(layer, output.hidden_states[layer])
            for layer, cross in self.part.attention:
                maps = output.cross_attentions if cross else output.attentions
                self.maps[layer, cross] = maps[layer - 1]
        elif isinstance(output, tuple):
            self._keep(len(self.part.stack.modules), output[0])
        else:
            self._keep(len(self.part.stack.modules), output.last_hidden_state)
        return output

    def run_attention(
        self, core: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Stand in for an attention module's forward: marked for the dispatch while it runs."""
        setattr(core, RECORDER, self)
        try:
            return forward(*args, **kwargs)
        finally:
            core.__dict__.pop(RECORDER)

    def attended(self, module: nn.Module, call: AttentionCall) -> None:
        """Called by the attention dispatch for a marked module, before attention itself."""
        self._check_grad()
        shared = self.part.stack.shared
        place = (self.calls_seen, False) if shared else self.part.cores[id(module)][1]
        if place in self.part.attention:
            self.calls[place] = call

    def _entered(self, hidden: Tensor) -> None:
        """The embedding output goes into the first layer, and tells the number of tokens."""
        if self.mask is None:
            self.mask = full_mask(hidden)
        if 0 in self.part.hidden:
            self._keep(0, hidden)

    def _keep(self, layer: int, hidden: Tensor) -> None:
        """Set one hidden state aside, pooled already if that loses nothing."""
        self._check_grad()
        for seen in self.part.hidden[layer]:
            if seen.pool is None or self.grad:
                self.hidden[layer] = hidden
            else:
                self.pooled[seen] = self._pool(hidden, seen)

    def value(self, seen: ActivationKey) -> Tensor:
        """The tensor of one item, after the pass."""
        if seen.what == "hidden":
            if seen in self.pooled:
                return self.pooled[seen]
            hidden = self.hidden.get(seen.layer)
            if hidden is None:
                raise LimbeckError(
                    f"{seen} could not be recorded: the model did not run that layer as usual",
                    "compile the module that calls capture, not the layers by themselves",
                )
            return hidden if seen.pool is None else self._pool(hidden, seen)
        place = (seen.layer, seen.stack == "cross")
        if place in self.maps:
            return self.maps[place]
        call = self.calls.get(place)
        if call is None:
            raise LimbeckError(
                f"{seen} could not be recorded: the model bypassed its attention function there",
                "load the model with attn_implementation='sdpa'",
            )
        if seen.what == "query":
            return call.query
        if seen.what in ("key", "value"):
            return call.repeated(call.key if seen.what == "key" else call.value)
        return call.scores() if seen.what == "scores" else call.probabilities()

    def _pool(self, hidden: Tensor, seen: ActivationKey) -> Tensor:
        if self.mask is None or self.mask.shape != hidden.shape[:2]:
            raise LimbeckError(
                f"{seen}: the token mask does not fit the hidden state {tuple(hidden.shape)}",
                "this model changes the number of tokens; ask for it unpooled (pool=None)",
            )
        return pool(hidden, self.mask, str(seen.pool))

    def _check_grad(self) -> None:
        if torch.is_grad_enabled() != self.grad:
            raise LimbeckError(
                "reentrant gradient checkpointing hides the graph of what is captured",
                "use gradient_checkpointing_kwargs={'use_reentrant': False}",
            )


def _exchanged(
    entry: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A layer's arguments with another hidden state in place of its own."""
    given = args[0] if args else kwargs["hidden_states"]
    entry = entry.to(given.dtype)
    return ((entry, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": entry})


def attach(recorder: Recorder) -> None:
    """Put a recorder on its stack, and cut the stack's layers if nothing behind them is wanted.

    Forward is shadowed on the instance rather than hooked, and taken off by `__dict__.pop`: that
    much torch.compile can trace and guard. Hooks it can not, and graphs compiled before would skip
    them.
    """
    part, stack = recorder.part, recorder.part.stack
    for core, _ in part.cores.values():
        _shadow(recorder, core, functools.partial(recorder.run_attention, core, core.forward))
    for module, layer in part.layers:
        _shadow(recorder, module, functools.partial(recorder.run_layer, layer, module.forward))
    if part.output:
        owner = stack.owner
        _shadow(recorder, owner, functools.partial(recorder.run_stack, owner.forward))
    if part.stops and not stack.shared:
        # Swapped, not edited: whoever holds the old dictionary sees no change.
        recorder.whole = stack.layers._modules
        stack.layers._modules = dict(list(recorder.whole.items())[: part.depth])


def detach(recorder: Recorder) -> None:
    """Take off whatever `attach` put on, however far it came."""
    if recorder.whole is not None:
        recorder.part.stack.layers._modules = recorder.whole
    for module, former in reversed(recorder.shadowed):
        if former is None:
            module.__dict__.pop("forward")
        else:
            module.forward = former


def _shadow(recorder: Recorder, module: nn.Module, forward: Callable[..., Any]) -> None:
    recorder.shadowed.append((module, module.__dict__.get("forward")))
    module.forward = forward
