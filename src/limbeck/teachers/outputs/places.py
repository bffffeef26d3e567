"""Where an example's tokens lie in a padded batch, in each stack that has tokens of its own.

Part of `limbeck.teachers.outputs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import stack_names, token_mask

TokensOf = Literal["main", "decoder"]
"""Whose tokens: those of the only stack or the encoder, or those of the decoder."""
Masks = Mapping[str, Tensor]
"""By stack, which tokens of a batch are real (B, N)."""
Lengths = Mapping[TokensOf, np.ndarray]
"""By stack, how many tokens each example has (n)."""


class Span(NamedTuple):
    """Neighbouring places: the first of them, and how many there are."""

    first: int = 0
    tokens: int = 0

    @property
    def slice(self) -> slice:
        """To cut them out."""
        return slice(self.first, self.first + self.tokens)


class Own(NamedTuple):
    """One example's places in a batch; without a decoder they are the same twice."""

    main: Span
    decoder: Span

    def of(self, tokens: TokensOf) -> Span:
        """Those of one stack."""
        return self.decoder if tokens == "decoder" else self.main


NOWHERE = Own(Span(), Span())
Alike = tuple[slice, Own]
"""Neighbours in a batch whose tokens lie at the same places."""


def token_masks(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The masks of all stacks, as the trace of a whole pass has them."""
    names = stack_names(model) or (
        "main",
    )  # a network without layers over tokens has one of an image
    return {name: token_mask(model, batch, name) for name in names}


def places(masks: Masks) -> list[Own]:
    """Where each example's real tokens lie."""
    main = _spans(masks["main"])
    return list(map(Own, main, _spans(masks["decoder"]) if "decoder" in masks else main))


def runs_alike(masks: Masks) -> list[Alike]:
    """The examples of a batch in runs of like neighbours; batches sorted by length have few."""
    found: list[Alike] = []
    for own, rows in groupby(places(masks)):
        start = found[-1][0].stop if found else 0
        found.append((slice(start, start + len(list(rows))), own))
    return found


def whole(masks: Masks) -> Own:
    """All places of a batch, padding and all."""
    main = Span(0, masks["main"].shape[1])
    return Own(main, Span(0, masks["decoder"].shape[1]) if "decoder" in masks else main)


def _spans(mask: Tensor) -> list[Span]:
    mask = mask.cpu()  # once
    return list(map(Span, mask.int().argmax(1).tolist(), mask.sum(1).tolist()))
