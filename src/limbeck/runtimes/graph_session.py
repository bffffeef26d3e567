"""What an opened model does, whatever runs it: batches of arrays in, logits out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np

from limbeck.support.errors import LimbeckError


class GraphSession(ABC):
    """One opened model file.

    Attributes:
        inputs: names of what it reads.
        outputs: names of what it returns: `logits`, or `start_logits` and `end_logits`.
        most_rows: of a batch; None where any number will do.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    most_rows: int | None = None

    @abstractmethod
    def run(self, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        """All outputs, in the order of `outputs`, for arrays named as `inputs`."""

    def rows_at_once(self, batch_size: int) -> int:
        """How many rows a batch may have where so many are wanted."""
        return batch_size if self.most_rows is None else min(batch_size, self.most_rows)

    def feed(self, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The arrays the model reads, of a batch of arrays or CPU tensors; other keys are left out.

        Raises:
            LimbeckError: the batch lacks an input.
        """
        missing = [name for name in self.inputs if name not in batch]
        if missing:
            raise LimbeckError(
                f"the exported model reads {', '.join(missing)}, which the batch does not hold",
                "make batches with the tokenizer that lies beside the model",
            )
        return {name: np.asarray(batch[name]) for name in self.inputs}

    def logits(self, batch: Mapping[str, Any]) -> np.ndarray:
        """Logits as the torch model's: (B, C), (B, N, C), or start and end (B, N, 2); float32.

        Raises:
            LimbeckError: the batch lacks an input, or the runtime answered other rows than it was given.
        """
        feed = self.feed(batch)
        found = self.run(feed)
        merged = found[0] if len(found) == 1 else np.stack(found, axis=-1)
        rows = len(feed[self.inputs[0]])
        # OpenVINO returns an empty array where a kernel it chose cannot run on this processor.
        if len(merged) != rows:
            raise LimbeckError(
                f"the exported model answered {len(merged)} rows where it was given {rows}",
                "its runtime fails on this processor: choose another runtime, export to another "
                "format, or unset ONEDNN_MAX_CPU_ISA where it is set",
            )
        return merged.astype(np.float32, copy=False)
