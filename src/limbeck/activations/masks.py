"""Which tokens of a batch are real, per stack.

`capture` pools with these masks, and objectives read them from the
trace.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from limbeck.support.errors import LimbeckError


def text_mask(batch: Mapping[str, Tensor], decoder: bool = False) -> Tensor | None:
    """The mask [B, N] (True = real token) that the batch itself tells, or None if it holds no
    tokens.

    Encoder side: `attention_mask`, else every token of `input_ids` or `inputs_embeds` is real.
    Decoder side: `decoder_attention_mask`, else where `labels` are not -100 (they stand one token
    further on, so position j is real when it has something to predict), else every decoder token;
    with no decoder input at all the model makes it from `input_ids` and reads it position by
    position with them, so their mask holds.

    Raises:
        LimbeckError: an attention mask that is not [B, N].
    """
    if decoder:
        given = batch.get("decoder_attention_mask")
        if given is not None:
            return _two_dimensional(given, "decoder_attention_mask")
        tokens = _first(batch, "decoder_input_ids", "decoder_inputs_embeds")
        labels = batch.get("labels")
        if labels is not None and labels.dim() == 2 and not labels.is_floating_point():  # noqa: SIM102
            if tokens is None or tokens.shape[:2] == labels.shape:
                return labels != -100
        if tokens is not None:
            return torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)
    given = batch.get("attention_mask")
    tokens = _first(batch, "input_ids", "inputs_embeds")
    if tokens is None:
        return None
    if given is not None:
        return _two_dimensional(given, "attention_mask")
    return torch.ones(tokens.shape[:2], dtype=torch.bool, device=tokens.device)


def full_mask(hidden: Tensor) -> Tensor:
    """A mask [B, N] of True for hidden states [B, N, d]: images have no padding."""
    return torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)


def _first(batch: Mapping[str, Tensor], *names: str) -> Tensor | None:
    return next((batch[name] for name in names if batch.get(name) is not None), None)


def _two_dimensional(mask: Tensor, name: str) -> Tensor:
    if not isinstance(mask, Tensor):
        raise LimbeckError(
            f"{name} is a {type(mask).__name__}, which does not say which tokens are real",
            "pass a tensor of shape (examples, tokens), 1 for a real token",
        )
    if mask.dim() != 2:
        raise LimbeckError(
            f"{name} has {mask.dim()} dimensions, so it does not say which tokens are real",
            "pass a mask of shape (examples, tokens), 1 for a real token",
        )
    return mask.bool()
