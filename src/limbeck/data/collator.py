"""From encoded examples to one batch, as wide as its longest example.

The last step of the data stage; what it returns is what capture feeds to both models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase

from limbeck.errors import LimbeckError


class Collator:
    """Pads encoded rows and stacks them: `Collator(tokenizer)(rows)` → tensors.

    "labels" come out as int64 class ids or float32 numbers, and only if the rows have them; "index"
    as int64. `pad_to_multiple_of` rounds the width up, which suits tensor cores. Raises
    LimbeckError for a tokenizer without a padding token.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, pad_to_multiple_of: int | None = None
    ) -> None:
        if tokenizer.pad_token is None:
            raise LimbeckError(
                f"{type(tokenizer).__name__} has no padding token, so a batch cannot be made",
                "set one, say tokenizer.pad_token = tokenizer.eos_token, and the model's "
                "config.pad_token_id with it",
            )
        self.padding = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=pad_to_multiple_of)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate the rows of an encoded split."""
        batch = dict(self.padding([dict(row) for row in rows]))
        if "labels" in batch and batch["labels"].is_floating_point():
            batch["labels"] = batch["labels"].to(torch.float32)
        return batch
