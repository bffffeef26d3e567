"""What a task type keeps of an exported model's outputs. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from limbeck.runtimes import GraphSession, TextToTextSession
from limbeck.tasks import Task, as_array


class _Writer:
    """An exported text-to-text model as what generates in a model's place."""

    def __init__(self, session: TextToTextSession) -> None:
        self.session = session

    def generate(
        self,
        *,
        input_ids: Tensor,
        attention_mask: Tensor,
        max_new_tokens: int,
        do_sample: bool,
        num_beams: int,
    ) -> Tensor:
        """Greedily generated token ids (B, T)."""
        assert not do_sample
        assert num_beams == 1
        batch = {"input_ids": input_ids, "attention_mask": attention_mask}
        return torch.from_numpy(self.session.generated(batch, max_new_tokens))


def compact_outputs_of_export(
    task: Task, session: GraphSession, batch: Mapping[str, Tensor], logits: np.ndarray
) -> np.ndarray:
    """What a task type scores of a batch: of logits, or of text that the exported model writes."""
    # What is kept of logits asks no model.
    writer: Any = _Writer(session) if isinstance(session, TextToTextSession) else None
    return as_array(task.kind.compact_outputs(writer, batch, torch.from_numpy(logits)))
