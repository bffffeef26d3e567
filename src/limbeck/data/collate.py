"""From encoded examples to one batch: of text as wide as its longest example, or of a fixed width.

The last step of the data stage; what it returns is what capture feeds to both models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor

from limbeck.model_inputs import TEACHER_COLUMN
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import accelerator
from limbeck.tasks import SENTENCE, Processor, TaskType
from limbeck.tasks.rules import pad_column

# What evaluation draws with; in training epoch e (from 0) draws with e + 1.
_EVALUATION_SEED = 0
_TILE = 8


class Collator:
    """Stacks encoded rows, text padded: `Collator(tokenizer)(rows)` → tensors.

    "labels" come out as int64 class ids or float32 numbers, and only if the rows have them; "index"
    as int64. Other task types bring the labels of theirs: by token, padded with −100, or as
    positions. `pad_to_multiple_of` rounds the width of text up: by default to 8 where there is an
    accelerator, whose matrix units work in tiles, and not at all on CPU. `pad_to` gives every
    batch that very width instead, as releases have it whose losses count padding. `tokenizer` is an
    image processor where the kind reads images. Raises LimbeckError for a tokenizer without a
    padding token, and for `pad_to` where examples have no padding.
    """

    def __init__(
        self,
        tokenizer: Processor,
        pad_to_multiple_of: int | None = None,
        *,
        pad_to: int | None = None,
        kind: TaskType = SENTENCE,
    ) -> None:
        self.kind = kind
        self.pad_to = pad_to
        if pad_to is not None and not kind.reads.pads:
            raise LimbeckError(
                f"pad_to {pad_to}: {kind.reads.noun}s are of one size and have no padding",
                "leave pad_to out",
            )
        self.tokenizer = tokenizer
        self.step = pad_to_multiple_of or (_TILE if accelerator() else None)
        kind.reads.check(tokenizer)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Collate the rows of an encoded split, as evaluation reads them.

        Raises LimbeckError for a row longer than `pad_to`.
        """
        kept = [
            {name: value for name, value in row.items() if name not in self.kind.scoring_columns}
            for row in rows
        ]
        width = self._width(kept)
        labels = self.kind.pad_labels(kept, self.tokenizer, width)
        others = self._inputs_of_others(kept, width)
        batch = self.kind.reads.stack(kept, self.tokenizer, width) | labels | others
        if "labels" in batch and batch["labels"].is_floating_point():
            batch["labels"] = batch["labels"].to(torch.float32)
        return self.kind.draw(batch, self.tokenizer, _EVALUATION_SEED, 0)

    def _inputs_of_others(self, rows: list[dict[str, Any]], width: int) -> dict[str, torch.Tensor]:
        """What teachers alone read, taken out of `rows`: a tokenizer pads only what it makes itself."""
        names = [name for name in rows[0] if name.startswith(TEACHER_COLUMN)]
        left = getattr(self.tokenizer, "padding_side", "right") == "left"
        return {
            name: pad_column([row.pop(name) for row in rows], width, 0, left=left) for name in names
        }

    def _width(self, rows: Sequence[Mapping[str, Any]]) -> int:
        if self.pad_to is None:
            return self.kind.reads.width(rows, self.step)
        longest = self.kind.reads.width(rows, None)
        if longest > self.pad_to:
            raise LimbeckError(
                f"pad_to {self.pad_to}: a row has {longest} tokens",
                "raise pad_to, or encode rows with a lower max_length",
            )
        return self.pad_to

    def for_epoch(self, batch: dict[str, Any], *, seed: int, epoch: int) -> dict[str, Any]:
        """The batch as training reads it in an epoch, counted from 0.

        Masked text hides other words each time, and images are cropped and mirrored again, as a
        function of (seed, epoch, index) alone.
        """
        return self.kind.draw(batch, self.tokenizer, seed, epoch + 1)


# Encoded rows in batches on a device: how a model is run over rows outside of training. Part of
# the data stage, after the collator.


Collate = Callable[[list[dict[str, Any]]], dict[str, Tensor]]


def batches_of(
    rows: Any,
    collate: Collate,
    size: int,
    device: torch.device | str,
    *,
    order: Sequence[int] | None = None,
) -> Iterator[dict[str, Tensor]]:
    """Walk over rows once.

    Args:
        rows: a `Dataset`, or anything with a length and examples by number.
        collate: makes a batch of examples.
        size: examples in a batch; the last one may have fewer.
        device: where batches lie.
        order: places of the rows, all or some, in which they are walked; by default their own.
    """
    places = range(len(rows)) if order is None else order
    for start in range(0, len(places), size):
        batch = collate(_examples(rows, [int(place) for place in places[start : start + size]]))
        yield {name: value.to(device) for name, value in batch.items()}


def _examples(rows: Any, places: list[int]) -> list[dict[str, Any]]:
    if not isinstance(rows, Dataset):
        return [rows[place] for place in places]
    # One read for all of them, where each alone is a read of the table.
    columns = rows[places]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
