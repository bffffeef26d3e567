"""Batches without padding: texts one after the other in one row. Part of `limbeck.activations`.

Position ids begin again at each text. Without an attention mask, transformers finds the texts by them
(`find_packed_sequence_indices`), and no token sees another text. Values return
in the padded layout, with zeros at padding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from limbeck.support.errors import LimbeckError


@dataclass(frozen=True)
class Packing:
    """Where a batch's tokens are in one row of T tokens.

    Attributes:
        mask: [B, N], True for real tokens.
        places: [B, N], each token's index in the row; any for padding.
        real: [T], each token's index in the flattened batch.
        positions: [1, T], each token's index in its text.
    """

    mask: Tensor
    places: Tensor
    real: Tensor
    positions: Tensor

    @classmethod
    def of(cls, mask: Tensor) -> "Packing":
        """Pack by a token mask [B, N]."""
        places = (mask.flatten().cumsum(0) - 1).clamp(min=0).view(mask.shape)
        positions = (mask.cumsum(1) - 1)[mask][None]
        return cls(mask, places, mask.flatten().nonzero()[:, 0], positions)

    def pack(self, inputs: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
        """Arguments of a forward pass for one row; only tensors [B, N, …] change.

        Raises:
            LimbeckError: the forward pass has no argument for positions.
        """
        if "position_ids" not in names:
            raise LimbeckError(
                "packing: the model takes no position_ids, which separate the texts",
                "leave packing out",
            )
        packed = {
            name: value[self.mask][None]
            if isinstance(value, Tensor) and value.shape[:2] == self.mask.shape
            else value
            for name, value in inputs.items()
            if name != "attention_mask"
        }
        return packed | {"position_ids": self.positions, "use_cache": False}

    def padded(self, values: Tensor) -> Tensor:
        """Values of tokens [1, T, …] as [B, N, …].

        Raises:
            LimbeckError: other values, such as logits of complete texts.
        """
        if values.shape[:2] != self.positions.shape:
            raise LimbeckError(
                f"packing: the model has outputs of shape {tuple(values.shape)}, not one for each token",
                "leave packing out",
            )
        batch, tokens = self.mask.shape
        empty = values.new_zeros(batch * tokens, *values.shape[2:])
        return empty.index_copy(0, self.real, values[0]).view(batch, tokens, *values.shape[2:])

    def padded_heads(self, values: Tensor) -> Tensor:
        """Values of heads [1, H, T, d] as [B, H, N, d]."""
        return self.padded(values.transpose(1, 2)).transpose(1, 2)

    def padded_mask(self, mask: Tensor | None) -> Tensor:
        """An attention mask [1, h, T, T] as [B, h, N, N]; without one, the token mask [B, N]."""
        if mask is None:
            return self.mask
        found = mask[0][:, self.places[:, :, None], self.places[:, None, :]].transpose(0, 1)
        seen = self.mask[:, None, None, :]
        if found.dtype == torch.bool:
            return found & seen
        return found.masked_fill(~seen, torch.finfo(found.dtype).min)
