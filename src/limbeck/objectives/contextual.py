"""Relations inside a representation, compared: among words, and among layers (contextual KD).

Part of `limbeck.objectives`. Nothing is compared across the sides but angles and similarities, so
widths may differ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from limbeck import functional as F
from limbeck.activations import ActivationKey
from limbeck.errors import LimbeckError
from limbeck.objectives.matched import MappedTerm, Masks
from limbeck.objectives.shape import Shape
from limbeck.objectives.spec import LayerRelationSpec, WordRelationSpec


class WordRelation(MappedTerm):
    """How an example's tokens stand to each other in a layer."""

    spec: WordRelationSpec

    @property
    def sees_differences(self) -> bool:
        """Angles are those of differences to a centre."""
        return self.spec.compare == "word_relation_mse"

    @property
    def sees_padding(self) -> bool:
        """Around a token, where the release's mean runs over whole windows."""
        return self.spec.mean_over == "all" and self.spec.compare == "word_relation_mse"

    def seen(self, layer: int) -> ActivationKey:
        """All tokens' hidden states."""
        return ActivationKey("hidden", layer, None, self.stack)

    def distance(self, state: Tensor, target: Tensor, masks: Masks) -> Tensor:
        """Pairs by KL, or angles in a window by squared error."""
        mask, over = masks.tokens, self.spec.mean_over
        if self.spec.compare == "word_relation_kl":
            return F.word_relation_kl(state, target, mask, mean_over=over)
        return F.word_relation_mse(state, target, mask, window=self.spec.window, mean_over=over)


class LayerRelation(MappedTerm):
    """How the mapped layers of a token stand to each other.

    Raises:
        LimbeckError: fewer than two layers (three for angles) are mapped.
    """

    spec: LayerRelationSpec

    def __init__(self, spec: LayerRelationSpec, shape: Shape, setting: str) -> None:
        super().__init__(spec, shape, setting)
        needed = 2 if spec.compare == "layer_relation_kl" else 3
        if len(self.mapping.student_layers) < needed:
            raise LimbeckError(
                f"{setting}: {spec.compare} relates at least {needed} layers, and "
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
        return self.spec.compare == "layer_relation_mse"

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
        if self.spec.compare == "layer_relation_mse":
            compared = F.layer_relation_mse
        return compared(state, target, masks.tokens, mean_over=self.spec.mean_over)
