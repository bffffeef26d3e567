"""What capture recorded: the second half of "request, then capture".

Objectives receive a trace from each side, student and
teacher.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from limbeck.activations.request import ActivationKey
from limbeck.functional.partial_logits import PartialLogits
from limbeck.support.errors import LimbeckError


@dataclass
class Mixed:
    """How a student's input was mixed (MixUp), and what it made of the clean examples.

    `clean`: the trace of the unmixed batch, if anything was asked of it. `partner` [B]: which
    example each was mixed with. `share`: λ, the example's own share.
    """

    clean: Trace
    partner: Tensor
    share: float


@dataclass
class Trace:
    """The tensors of one captured forward pass; read them with `trace[Seen(...)]`.

    `values`: hidden states [B, N, d] or pooled [B, d]; probabilities and scores [B, H, Q, K];
    query, key and value [B, H, N, d_head]. `logits`: the head's, if asked for. `masks`: per stack
    [B, N], True for a real token. `mixed`: how the input was mixed, if it was. `each`
    [T, B, …]: the logits of each teacher of an ensemble, whose mean `logits` is. `partial`: what was stored of
    logits over a vocabulary, in their place.
    """

    values: dict[ActivationKey, Tensor] = field(default_factory=dict)
    logits: Tensor | None = None
    masks: dict[str, Tensor] = field(default_factory=dict)
    mixed: Mixed | None = None
    each: Tensor | None = None
    partial: PartialLogits | None = None

    def __getitem__(self, seen: ActivationKey) -> Tensor:
        try:
            return self.values[seen]
        except KeyError:
            there = "; ".join(sorted(str(known) for known in self.values)) or "nothing"
            raise LimbeckError(
                f"{seen} was not captured (captured: {there})",
                "add it to the Request that capture was given",
            ) from None

    def mask(self, stack: str = "main") -> Tensor:
        """The token mask [B, N] of a stack, True where a real token stands."""
        try:
            return self.masks[stack]
        except KeyError:
            raise LimbeckError(
                f"no token mask for stack {stack!r} (there: {', '.join(sorted(self.masks))})",
                "ask something of that stack, or name one of those",
            ) from None
