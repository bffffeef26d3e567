"""Attention seen without switching it: query, key and value set aside where every model calls
attention.

It works inside the model's forward pass. Every attention module
of transformers asks `AttentionInterface.get_interface` for its function and calls it with query,
key, value and mask. That lookup is wrapped once, when attention is first asked for. The wrapper
passes everything through untouched; only for a module that carries a recorder does it set the
arguments aside first. The implementation (SDPA, flash, eager), masks and configuration stay as
they are. Maps are computed after the forward pass, for the layers asked for only, so gradient
checkpointing replays exactly what it ran.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from limbeck.activations.compat import wrap_dispatch
from limbeck.support.errors import LimbeckError

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
            "ask for hidden states instead",
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
        # Eager attention is always given its whole mask; the kernels leave causality to a flag.
        causal=bool(causal) and implementation != "eager" and unmasked and query.shape[2] > 1,
        # A four-dimensional mask holds the window already; only flash attention is told it apart.
        window=named.get("sliding_window") if flash else None,
    )
