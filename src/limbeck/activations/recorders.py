"""Watchers of one forward pass: put on, set tensors aside, taken off.

Recorders are inside the model while `capture` runs it. Everything put
on a model (a shadow of forward, the mark of recorded attention, the shortened layer list) is taken
off again, also when the pass fails. Tensors are only set aside, so the model's values and
gradients are the ones it has anyway.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from limbeck.activations.compat import wrap_dispatch
from limbeck.activations.packing import Packing
from limbeck.activations.plan import StackPlan
from limbeck.activations.request import ActivationKey
from limbeck.functional import pool
from limbeck.support.errors import LimbeckError

# Attention seen without switching it: query, key and value set aside where every model calls
# attention.
#
# It works inside the model's forward pass. Every attention module of transformers asks
# `AttentionInterface.get_interface` for its function and calls it with query, key, value and mask.
# That lookup is wrapped once, at the first request for attention. The wrapper passes everything
# through untouched; only for a module that carries a recorder does it set the arguments aside first.
# The implementation (SDPA, flash, eager), masks and configuration stay as they are. Maps are computed
# after the forward pass, for the requested layers only, so gradient checkpointing replays exactly
# the original pass.


RECORDER = "_limbeck_recorder"


@dataclass(eq=False)
class AttentionCall:
    """One call of attention, as the model made it.

    query [B, H, Q, d_head]; key and value [B, H or groups, K, d_head]; `mask` None, boolean or
    additive [B or 1, H or 1, Q or 1, K], or [B, K]; `position_bias` [1 or B, H, Q, K]; `causal`:
    no mask was passed because the kernel masks the future itself; `window`: tokens further away
    than this are not seen.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scaling: float
    position_bias: Tensor | None
    softcap: float | None
    causal: bool
    window: int | None

    def padded(self, packing: Packing) -> "AttentionCall":
        """The call of a packed row, as of its padded batch."""
        return replace(
            self,
            query=packing.padded_heads(self.query),
            key=packing.padded_heads(self.key),
            value=packing.padded_heads(self.value),
            mask=packing.padded_mask(self.mask),
        )

    def repeated(self, tensor: Tensor) -> Tensor:
        """Key or value with grouped heads repeated, [B, H, K, d_head]."""
        groups = self.query.shape[1] // tensor.shape[1]
        return tensor.repeat_interleave(groups, dim=1) if groups > 1 else tensor

    def scores(self) -> Tensor:
        """Scaled scores before the softmax, [B, H, Q, K], float32, unmasked: q·k·scaling, position
        bias, softcap."""
        with torch.autocast(self.query.device.type, enabled=False):
            query, key = _in_one_piece(self.query), _in_one_piece(self.repeated(self.key))
            scores = torch.matmul(query, key.transpose(2, 3)).mul_(self.scaling)
            if self.softcap is not None:
                scores = torch.tanh(scores / self.softcap) * self.softcap
            if self.position_bias is not None:
                scores = scores + self.position_bias
            return scores

    def probabilities(self) -> Tensor:
        """Attention probabilities before dropout, [B, H, Q, K], float32; a fully masked row is
        uniform."""
        scores = self.scores()
        queries, keys = scores.shape[-2:]
        lowest = torch.finfo(scores.dtype).min
        mask = self.mask
        if mask is not None and mask.dim() == 2:
            mask = mask.bool()[:, None, None, :]
        if mask is not None:
            mask = mask[..., :keys]
            scores = (
                scores.masked_fill(~mask, lowest) if mask.dtype == torch.bool else scores + mask
            )
        if self.causal or self.window is not None:
            allowed = _allowed(queries, keys, self.causal, self.window, scores.device)
            scores = scores.masked_fill(~allowed, lowest)
        return torch.softmax(scores, dim=-1)


def _allowed(
    queries: int, keys: int, causal: bool, window: int | None, device: torch.device
) -> Tensor:
    """Which key each query sees, [Q, K]: not the future, not beyond the window."""
    behind = (
        torch.arange(queries, device=device)[:, None] - torch.arange(keys, device=device)[None, :]
    )
    allowed = behind >= 0 if causal else torch.ones_like(behind, dtype=torch.bool)
    return allowed & (behind.abs() < window) if window is not None else allowed


def _in_one_piece(tensor: Tensor) -> Tensor:
    """Contiguous, at least float32, by one copy: matmul would copy a transposed view number by number."""
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return tensor.to(wide, memory_format=torch.contiguous_format).contiguous()


_wrappers: dict[tuple[Callable[..., Any], str], Callable[..., Any]] = {}


def install() -> None:
    """Wrap transformers' attention lookup, once per process."""
    wrap_dispatch(_recording)


def _recording(function: Callable[..., Any], implementation: str) -> Callable[..., Any]:
    """`function`, setting its arguments aside first when the module carries a recorder.

    One wrapper per function is kept, so that compiled code meets the same object again.
    """
    known = _wrappers.get((function, implementation))
    if known is not None:
        return known

    @functools.wraps(function)
    def attend(
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Any,
        *positional: Any,
        **named: Any,
    ) -> Any:
        recorder = module.__dict__.get(RECORDER)
        if recorder is not None:
            call = _call(module, query, key, value, attention_mask, implementation, named)
            recorder.attended(module, call)
        return function(module, query, key, value, attention_mask, *positional, **named)

    _wrappers[function, implementation] = attend
    return attend


def _call(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    implementation: str,
    named: dict[str, Any],
) -> AttentionCall:
    """Read one attention call the way the implementation that is about to run reads it."""
    if mask is not None and not isinstance(mask, Tensor):
        raise LimbeckError(
            f"attention {implementation!r} hides its mask in a {type(mask).__name__}",
            "load the model with attn_implementation='sdpa'",
        )
    if named.get("s_aux") is not None:
        raise LimbeckError(
            "attention with sinks (s_aux) cannot be captured: its probabilities do not sum to one",
            "request hidden states instead",
        )
    causal = named.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    flash = "flash" in implementation
    unmasked = mask is None or mask.dim() == 2
    scaling = named.get("scaling")
    return AttentionCall(
        query=query,
        key=key,
        value=value,
        mask=mask,
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        position_bias=named.get("position_bias"),
        softcap=named.get("softcap"),
        # Eager attention always gets its complete mask; the kernels leave causality to a flag.
        causal=bool(causal) and implementation != "eager" and unmasked and query.shape[2] > 1,
        # A four-dimensional mask contains the window already; only flash attention gets it separately.
        window=named.get("sliding_window") if flash else None,
    )


class StopForward(Exception):  # noqa: N818 (it reports success, not an error)
    """Raised behind the last layer needed, where layers are shared and the list cannot be cut."""


class Recorder:
    """Values set aside of one stack during one forward pass.

    Under no_grad hidden states are pooled at once, so the full ones are freed; with gradients they
    are kept by autograd anyway, and pooling waits, so that gradient checkpointing replays only
    the model's own operations.
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
        self.packing: Packing | None = None

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

        A model without declarations has to return all its hidden states and attentions here.
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
        """The embedding output goes into the first layer, and its length is the number of tokens."""
        if self.mask is None:
            # Images have no padding.
            self.mask = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
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
                    "compile the module that calls capture, not the layers separately",
                )
            return self._padded(hidden) if seen.pool is None else self._pool(hidden, seen)
        place = (seen.layer, seen.stack == "cross")
        if place in self.maps:
            return self.maps[place]
        call = self.calls.get(place)
        if call is None:
            raise LimbeckError(
                f"{seen} could not be recorded: the model bypassed its attention function there",
                "load the model with attn_implementation='sdpa'",
            )
        if self.packing is not None:
            call = call.padded(self.packing)
        if seen.what == "query":
            return call.query
        if seen.what in ("key", "value"):
            return call.repeated(call.key if seen.what == "key" else call.value)
        return call.scores() if seen.what == "scores" else call.probabilities()

    def _padded(self, hidden: Tensor) -> Tensor:
        return hidden if self.packing is None else self.packing.padded(hidden)

    def _pool(self, hidden: Tensor, seen: ActivationKey) -> Tensor:
        hidden = self._padded(hidden)
        if self.mask is None or self.mask.shape != hidden.shape[:2]:
            raise LimbeckError(
                f"{seen}: the token mask does not fit the hidden state {tuple(hidden.shape)}",
                "this model changes the number of tokens; request it unpooled (pool=None)",
            )
        return pool(hidden, self.mask.to(hidden.device), str(seen.pool))

    def _check_grad(self) -> None:
        if torch.is_grad_enabled() != self.grad:
            raise LimbeckError(
                "reentrant gradient checkpointing hides the graph of captured activations",
                "use gradient_checkpointing_kwargs={'use_reentrant': False}",
            )


def _exchanged(
    entry: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A layer's arguments with another hidden state instead of its own."""
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
        # Swapped, not edited: the old dictionary does not change.
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
