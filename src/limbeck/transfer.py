"""The device that computes, and what goes there from the host without waiting for what it still does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def accelerator() -> torch.device | None:
    """The accelerator that torch can use here, without an index; None on a machine without one.

    A build of torch for CUDA names CUDA also where no driver is installed: only what is available counts.
    """
    return torch.accelerator.current_accelerator(check_available=True)


def device() -> torch.device:
    """Where this process computes: on its own accelerator of those of the machine, else on CPU."""
    found = accelerator()
    if found is None:
        return torch.device("cpu")
    return torch.device(found.type, int(os.environ.get("LOCAL_RANK", "0")))


def send(values: Tensor, device: torch.device) -> Tensor:
    """The values on the device; to CUDA through pinned memory, so that the host goes on at once."""
    if device.type != "cuda" or values.device.type != "cpu":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


class SentBatch(dict[str, Any]):
    """A batch on the device, and `host`: what came from the collator, where numbers can be read.

    Changes (`|`) are made to what is on the device.
    """

    def __init__(self, on_device: Mapping[str, Any], host: Mapping[str, Any]) -> None:
        super().__init__(on_device)
        self.host = host

    # dict's own has a second form, for keys of other types, which a batch does not.
    def __or__(self, changes: Mapping[str, Any]) -> SentBatch:  # type: ignore[override]
        """The same examples, some of their tensors changed."""
        return SentBatch({**self, **changes}, self.host)


def on_host(batch: Mapping[str, Any]) -> Mapping[str, Any]:
    """The batch as the collator made it, if that is known; else the batch itself."""
    return batch.host if isinstance(batch, SentBatch) else batch


class ReadOnce:
    """A tensor's numbers on the host, fetched once a change; to ask in every step costs no waiting."""

    def __init__(self) -> None:
        self._of: tuple[Tensor, int] | None = None
        self._numbers = torch.empty(0)

    def __call__(self, tensor: Tensor) -> Tensor:
        """The tensor on the processor, as it is now."""
        if self._of is None or self._of[0] is not tensor or self._of[1] != tensor._version:
            self._of, self._numbers = (tensor, tensor._version), tensor.cpu()
        return self._numbers
