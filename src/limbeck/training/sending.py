"""When a batch goes to the device: in the step, and not when it is loaded. Part of `limbeck.training`."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader
from transformers import Trainer

from limbeck.support.machine import SentBatch, send


class SendsBatches(Trainer):
    """A Trainer whose training steps know of a batch what it was on the host, without waiting."""

    def get_train_dataloader(self) -> DataLoader:
        """Its batches stay on the host until a step, which reads there what it has to know."""
        placed = self.accelerator.device_placement
        self.accelerator.device_placement = False
        try:
            return super().get_train_dataloader()
        finally:
            self.accelerator.device_placement = placed

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        # Evaluation's loader has sent them already, and nobody asks for what they were.
        return SentBatch(super()._prepare_inputs(inputs), host=inputs)

    def _prepare_input(self, data: Any) -> Any:
        if isinstance(data, Tensor) and not self.is_deepspeed_enabled:
            return send(data, self.args.device)
        return super()._prepare_input(data)
