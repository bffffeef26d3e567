"""Requests of objectives for a model's activations: the first half of "request, then capture".

Objectives state requests, training unites
the requests of the active objectives, and `capture` records exactly that and nothing more.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from torch import Tensor

from limbeck.functional.partial_logits import KeptTokens, PartialLogits
from limbeck.support.errors import LimbeckError, Problem, unknown
from limbeck.support.settings import Pool

What = Literal["hidden", "probabilities", "scores", "query", "key", "value"]
StackName = Literal["main", "encoder", "decoder", "cross"]


class ActivationKey(NamedTuple):
    """One thing to look at.

    Attributes:
        what: `hidden` states, attention `probabilities` or `scores`, or `query`, `key`, `value` per head.
        layer: for `hidden`, 0 is the embedding output and 1..L the layers; for the rest 1..L.
        pool: `hidden` only; None keeps all tokens, otherwise `limbeck.functional.pool` with the token mask.
        stack: `main` is the encoder of an encoder-decoder, otherwise the only stack; `cross` is attention only.
    """

    what: What
    layer: int
    pool: Pool | None = None
    stack: StackName = "main"

    def __str__(self) -> str:
        pooled = f", pool={self.pool}" if self.pool else ""
        return f"{self.what} of {self.stack} layer {self.layer}{pooled}"


@dataclass(frozen=True)
class Request:
    """A set of things to look at, and whether the logits are wanted; requests unite with `|`.

    Attributes:
        items: the things to look at.
        logits: whether the head's outputs are wanted.
        tokens: of logits over a vocabulary no more than these are looked at, so that no more need be stored; a model
            that is there gives all. Whoever asks for other tokens, or for all, is given all.

    Raises:
        LimbeckError: an unknown kind, pooling or stack, a negative layer, or a pairing that has no
            meaning.
    """

    items: frozenset[ActivationKey] = frozenset()
    logits: bool = False
    tokens: KeptTokens | None = None

    def __post_init__(self) -> None:
        problems = [problem for seen in self.items for problem in _problems(seen)]
        if problems:
            raise LimbeckError(problems)

    def __or__(self, other: "Request") -> "Request":
        asked = {one.tokens for one in (self, other) if one.logits}
        tokens = asked.pop() if len(asked) == 1 else None
        return Request(self.items | other.items, self.logits or other.logits, tokens)

    @classmethod
    def hidden(
        cls, layers: Iterable[int], pool: Pool | None = None, stack: StackName = "main"
    ) -> "Request":
        """Ask for the hidden states after `layers` (0 = embedding output), pooled if `pool` is
        given."""
        return cls(frozenset(ActivationKey("hidden", layer, pool, stack) for layer in layers))

    @classmethod
    def attention(
        cls, layers: Iterable[int], what: What = "probabilities", stack: StackName = "main"
    ) -> "Request":
        """Ask for the attention maps, or the query, key or value, of `layers` (1..L)."""
        return cls(frozenset(ActivationKey(what, layer, None, stack) for layer in layers))

    @classmethod
    def of_logits(cls, tokens: KeptTokens | None = None) -> "Request":
        """Ask for the logits of the model's head, all or of some tokens."""
        return cls(logits=True, tokens=tokens)


def _problems(seen: ActivationKey) -> Iterator[Problem]:
    """Everything about one item that no model could satisfy."""
    words = (
        ("kind of capture", seen.what, get_args(What)),
        ("pooling", seen.pool, get_args(Pool)),
        ("stack", seen.stack, get_args(StackName)),
    )
    wrong = [one for one in words if one[1] is not None and one[1] not in one[2]]
    if wrong:
        yield from (unknown(*one) for one in wrong)
        return
    lowest = 0 if seen.what == "hidden" else 1
    if seen.layer < lowest:
        yield Problem(
            f"layer {seen.layer} requested for {seen.what!r}",
            f"count layers from {lowest}" + (" (the embedding output)" if lowest == 0 else ""),
        )
    if seen.pool is not None and seen.what != "hidden":
        said = f"pool={seen.pool!r} requested for {seen.what!r}"
        yield Problem(said, "only hidden states are pooled")
    if seen.stack == "cross" and seen.what == "hidden":
        yield Problem(
            "hidden states requested from stack 'cross'",
            "cross attention has no hidden states; use 'decoder'",
        )


# What capture recorded: the second half of "request, then capture". Objectives receive a trace
# from each side, student and teacher.


@dataclass
class Mixed:
    """How a student's input was mixed (MixUp), and the student's activations for the clean examples.

    `clean`: the trace of the unmixed examples, if it was requested. `batch`: these examples, the batch's own B first,
    then partners from other processes. `partner` [B]: which one each was mixed with. `share`: λ, the example's own
    share.
    """

    clean: "Trace"
    batch: Mapping[str, Tensor]
    partner: Tensor
    share: float

    def pair(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Values of the unmixed examples: each mixed one's own, and its partner's."""
        return values[: len(self.partner)], values[self.partner]


@dataclass
class Trace:
    """The tensors of one captured forward pass; read them with `trace[ActivationKey(...)]`.

    Attributes:
        values: hidden states [B, N, d] or pooled [B, d]; probabilities and scores [B, H, Q, K]; query, key and value
            [B, H, N, d_head].
        logits: the head's, if requested.
        masks: per stack [B, N], True for a real token.
        mixed: how the input was mixed, if it was.
        each: [T, B, …], the logits of each teacher of an ensemble, whose mean `logits` is.
        partial: the stored part of logits over a vocabulary, instead of them.
        aligned: of a teacher with other tokens, whose values were brought onto the student's; `masks` then leave out
            tokens without a teacher token.
    """

    values: dict[ActivationKey, Tensor] = field(default_factory=dict)
    logits: Tensor | None = None
    masks: dict[str, Tensor] = field(default_factory=dict)
    mixed: Mixed | None = None
    each: Tensor | None = None
    partial: PartialLogits | None = None
    aligned: bool = False

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
        """The token mask [B, N] of a stack, True at real tokens."""
        try:
            return self.masks[stack]
        except KeyError:
            raise LimbeckError(
                f"no token mask for stack {stack!r} (there: {', '.join(sorted(self.masks))})",
                "request something from that stack, or name one of those",
            ) from None
