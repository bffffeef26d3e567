"""Relations inside a representation, compared: among words, and among layers (contextual KD).

Part of `limbeck.objectives`. Nothing is compared across the sides but angles and similarities, so
widths may differ.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import ActivationKey
from limbeck.objectives.mapped import MappedSpec
from limbeck.objectives.matched import MappedTerm, Masks
from limbeck.objectives.registration import objective
from limbeck.objectives.shape import Shape
from limbeck.support.errors import LimbeckError

_RELATIONS_MEAN: Any = Field(
    "valid",
    description="each example's valid tokens first, then the batch; all: one mean over all pairs and "
    "triples of the batch, and padding around a token counts (contextual KD's release)",
)


class WordRelationSpec(MappedSpec):
    """Relations among an example's tokens, or among a token's layers (contextual KD)."""

    compare: Literal["word_relation_kl", "word_relation_mse"]
    mean_over: Literal["valid", "all"] = _RELATIONS_MEAN
    window: int = Field(21, gt=2, le=10**6, description="word_relation_mse: tokens around a centre")

    @model_validator(mode="after")
    def _makes_sense(self) -> WordRelationSpec:
        if self.compare == "word_relation_kl" and "window" in self.model_fields_set:
            raise ValueError("`window` goes with word_relation_mse; leave it out")
        return self

    @model_serializer(mode="wrap")
    def _without_idle_key(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        if self.compare == "word_relation_kl":
            written.pop("window", None)
        return written


@objective("word_relation_kl", "word_relation_mse", settings=WordRelationSpec)
class WordRelation(MappedTerm):
    """How an example's tokens stand to each other in a layer."""

    settings: WordRelationSpec

    @property
    def sees_differences(self) -> bool:
        """Angles are those of differences to a centre."""
        return self.settings.compare == "word_relation_mse"

    @property
    def sees_padding(self) -> bool:
        """Around a token, where the release's mean runs over whole windows."""
        return self.settings.mean_over == "all" and self.settings.compare == "word_relation_mse"

    def seen(self, layer: int) -> ActivationKey:
        """All tokens' hidden states."""
        return ActivationKey("hidden", layer, None, self.stack)

    def distance(self, state: Tensor, target: Tensor, masks: Masks) -> Tensor:
        """Pairs by KL, or angles in a window by squared error."""
        mask, over = masks.tokens, self.settings.mean_over
        if self.settings.compare == "word_relation_kl":
            return F.word_relation_kl(state, target, mask, mean_over=over)
        return F.word_relation_mse(state, target, mask, window=self.settings.window, mean_over=over)


class LayerRelationSpec(MappedSpec):
    """Relations among the mapped layers of each token (contextual KD)."""

    compare: Literal["layer_relation_kl", "layer_relation_mse"]
    mean_over: Literal["valid", "all"] = _RELATIONS_MEAN

    @model_validator(mode="after")
    def _makes_sense(self) -> LayerRelationSpec:
        if self.mapping.combine == "costs":
            raise ValueError(
                f"{self.compare} needs one teacher layer for each student layer; "
                "combine: costs and kind: transport compare pairs"
            )
        if self.pairs == "mean":
            raise ValueError(f"{self.compare} is a single comparison; leave `pairs` out")
        return self


@objective("layer_relation_kl", "layer_relation_mse", settings=LayerRelationSpec)
class LayerRelation(MappedTerm):
    """How the mapped layers of a token stand to each other.

    Raises:
        LimbeckError: fewer than two layers (three for angles) are mapped, and `mean_over` is `valid`.
    """

    settings: LayerRelationSpec

    def __init__(self, settings: LayerRelationSpec, shape: Shape, setting: str) -> None:
        super().__init__(settings, shape, setting)
        needed = 2 if settings.compare == "layer_relation_kl" else 3
        # With fewer the release's mean over the whole batch is 0: the term is there and teaches nothing.
        if settings.mean_over != "all" and len(self.mapping.student_layers) < needed:
            raise LimbeckError(
                f"{setting}: {settings.compare} relates at least {needed} layers, and "
                f"{len(self.mapping.student_layers)} are mapped",
                "map more student layers (0 is the embedding output)",
            )

    @property
    def together(self) -> bool:
        """A layer is compared with the others."""
        return True

    @property
    def sees_differences(self) -> bool:
        """Angles are those of differences to a centre."""
        return self.settings.compare == "layer_relation_mse"

    def seen(self, layer: int) -> ActivationKey:
        """All tokens' hidden states."""
        return ActivationKey("hidden", layer, None, self.stack)

    def compare(
        self, states: dict[int, Tensor], targets: dict[int, Tensor], masks: Masks
    ) -> Tensor:
        """All layers at once: (1)."""
        state = torch.stack(list(states.values()), dim=2)
        return self.distance(state, torch.stack(list(targets.values()), dim=2), masks)[None]

    def distance(self, state: Tensor, target: Tensor, masks: Masks) -> Tensor:
        """States (B, N, S, d): pairs by KL, or angles by squared error."""
        compared = F.layer_relation_kl
        if self.settings.compare == "layer_relation_mse":
            compared = F.layer_relation_mse
        return compared(state, target, masks.tokens, mean_over=self.settings.mean_over)
