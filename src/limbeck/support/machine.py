"""The device of this process, and copies to it that do not wait for its pending work."""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import (
    align_module_device,
    broadcast_object_list,
    gather,
    gather_object,
    get_int_from_env,
    reduce,
)
from torch import Tensor, nn


def accelerator() -> torch.device | None:
    """The accelerator that torch can use here, without an index; None on a machine without one.

    A build of torch for CUDA names CUDA even without a driver: only an available device counts.
    """
    return torch.accelerator.current_accelerator(check_available=True)


def device() -> torch.device:
    """The device of this process: its own accelerator if the machine has one, otherwise CPU."""
    found = accelerator()
    if found is None:
        return torch.device("cpu")
    return torch.device(found.type, int(os.environ.get("LOCAL_RANK", "0")))


def send(values: Tensor, device: torch.device) -> Tensor:
    """The values on the device; to CUDA through pinned memory, so that the host need not wait."""
    if device.type != "cuda" or values.device.type != "cpu":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, evaluation mode without gradients; the modules' own modes come back afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training


# Models whose parts accelerate has placed on several devices (`device_map`). Its hooks move what each
# part reads, and such a model is never moved.


def is_spread(model: Any) -> bool:
    """Whether accelerate has placed a model's parts on several devices, or on disk."""
    places = {*(getattr(model, "hf_device_map", None) or {}).values()}
    return len(places) > 1 or "disk" in places


def device_of(model: Any) -> torch.device:
    """The device of a model's inputs: for a spread model the first accelerator that holds a part of it."""
    if not is_spread(model):
        own: torch.device = model.device
        return own
    places = (one for one in model.hf_device_map.values() if one not in ("cpu", "disk"))
    return torch.device(next(places, "cpu"))


def place(model: Any, device: torch.device | str) -> None:
    """Move a model to a device, unless it is spread."""
    if not is_spread(model):
        model.to(device)


def weights_of(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield a model's weights by name, sorted; offloaded ones are read one at a time."""
    for name, weight in sorted(model.state_dict().items()):
        if not weight.is_meta:
            yield name, weight
            continue
        owner, _, own = name.rpartition(".")
        part = model.get_submodule(owner)
        with align_module_device(part):
            yield name, getattr(part, own)


class SentBatch(dict[str, Any]):
    """A batch on the device, and `host`: what came from the collator, where numbers can be read.

    Changes (`|`) apply to the tensors on the device.
    """

    def __init__(self, on_device: Mapping[str, Any], host: Mapping[str, Any]) -> None:
        super().__init__(on_device)
        self.host = host

    # dict's own has a second form, for keys of other types, which a batch does not.
    def __or__(self, changes: Mapping[str, Any]) -> "SentBatch":  # type: ignore[override]
        """The same examples, some of their tensors changed."""
        return SentBatch({**self, **changes}, self.host)


def on_host(batch: Mapping[str, Any]) -> Mapping[str, Any]:
    """The batch as the collator made it, if it is known; otherwise the batch itself."""
    return batch.host if isinstance(batch, SentBatch) else batch


class RepeatedExamples(dict[str, Any]):
    """A batch of examples that another batch of the epoch holds already: it counts for nothing."""


class ReadOnce:
    """A tensor's numbers on the host, fetched once per change; reading them in every step causes no wait."""

    def __init__(self) -> None:
        self._of: tuple[Tensor, int] | None = None
        self._numbers = torch.empty(0)

    def __call__(self, tensor: Tensor) -> Tensor:
        """The tensor on the processor, as it is now."""
        if self._of is None or self._of[0] is not tensor or self._of[1] != tensor._version:
            self._of, self._numbers = (tensor, tensor._version), tensor.cpu()
        return self._numbers


# One decision for all processes of a run, where each would measure or look for itself. Below
# every decision that depends on the machine's state: which attention is faster, whether
# stored teacher outputs are there. Processes that decided differently would compute differently,
# or wait for each other for ever.


T = TypeVar("T")


class ShareOfStep(NamedTuple):
    """The share of one process in an optimization step.

    Attributes:
        batch_size: examples of a forward pass.
        accumulation: forward passes.
        sharing: processes among which one forward pass of the recipe is divided.
    """

    batch_size: int
    accumulation: int
    sharing: int


_SIZES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
"""The variables in which launchers write it, as accelerate reads them."""


def processes() -> int:
    """The number of processes of the run, from torchrun, accelerate or MPI."""
    found: int = get_int_from_env(_SIZES, 1)
    return found


def share_of_step(batch_size: int, accumulation: int) -> ShareOfStep | None:
    """One process's part of a step, which holds as many examples whatever the number of processes.

    Forward passes are split first, as a term compares tensors of one pass. None if the step cannot be split evenly.
    """
    passes = math.gcd(accumulation, processes())
    sharing = processes() // passes
    if batch_size % sharing:
        return None
    return ShareOfStep(batch_size // sharing, accumulation // passes, sharing)


def agreed(own: T) -> T:
    """The first process's value, in every process; every one has to call it. Alone: one's own."""
    if _alone():
        return own
    _processes()
    box = [own]
    broadcast_object_list(box)
    return box[0]


def largest(own: int) -> int:
    """The largest value of any process, in every process; every one has to call it."""
    if _alone():
        return own
    _processes()
    known: list[int] = gather_object([own])
    return max(known)


def summed(own: Tensor) -> Tensor:
    """The sum of every process's tensor, in every process; every one has to call it."""
    if _alone():
        return own
    _processes()
    total: Tensor = reduce(own, reduction="sum")
    return total


class _OfAll(torch.autograd.Function):
    """The rows of every process, in order of rank; backward sums the gradients of all processes."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, sizes: list[int], rank: int) -> Tensor:
        start = sum(sizes[:rank])
        ctx.own = slice(start, start + sizes[rank]), own.shape
        filled = own.new_zeros(max(sizes), *own.shape[1:])
        filled[: sizes[rank]] = own[: sizes[rank]]
        parts = gather(filled).split(max(sizes))
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        rows, shape = ctx.own
        own = gradient.new_zeros(shape)
        own[: rows.stop - rows.start] = summed(gradient.contiguous())[rows]
        return own, None, None


class SharedPass:
    """A forward pass whose examples are divided among processes that follow each other in rank.

    Every process makes one for the same pass, and calls it for the same tensors.

    Args:
        batch: the process's own examples, which count for nothing if they repeat others.
        sharing: how many processes share the pass.
    """

    def __init__(self, batch: Mapping[str, Any], sharing: int) -> None:
        first = next(iter(batch.values()))
        count = 0 if isinstance(on_host(batch), RepeatedExamples) else len(first)
        self.rank = _processes().process_index
        self.sizes: list[int] = gather(torch.tensor([count], device=first.device)).tolist()
        start = self.rank // sharing * sharing
        before, inside = sum(self.sizes[:start]), sum(self.sizes[start : start + sharing])
        self._rows = slice(before, before + inside)
        self.count = inside
        """Examples of the pass."""
        self.own = slice(sum(self.sizes[start : self.rank]), sum(self.sizes[start : self.rank + 1]))
        """Place of the process's own rows in the pass."""

    def __call__(self, own: Tensor) -> Tensor:
        """All rows of the pass (n, …), with gradients, from each process's own."""
        found: Tensor = _OfAll.apply(own, self.sizes, self.rank)  # type: ignore[no-untyped-call]
        return found[self._rows]

    def mean(self, own: Tensor) -> Tensor:
        """The mean over the examples of the pass, from the means over each process's own."""
        size = self.own.stop - self.own.start
        return self(own.expand(size, *own.shape)).mean(0)


def is_first() -> bool:
    """Whether this process is the one that writes a run's files."""
    return _alone() or _processes().is_main_process


def wait_for_all() -> None:
    """Go on when every process has come here."""
    if not _alone():
        _processes().wait_for_everyone()


def _alone() -> bool:
    return processes() == 1


def _processes() -> PartialState:
    # As the Trainer's arguments do it later, which then find it done.
    return PartialState(cpu=accelerator() is None)
