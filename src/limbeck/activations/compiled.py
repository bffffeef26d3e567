"""`capture` under torch.compile: one graph for each request, whatever the batch's size.

It takes the place of `capture` in runs with `compile=true`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations.forward import capture
from limbeck.activations.request import Request
from limbeck.activations.trace import Trace

BACKEND = "inductor"
# torch gives up on a piece of code after eight graphs; a request that is sampled again in every epoch
# (random layers) would use them up.
_MOST = 4


class CompiledCapture:
    """`CompiledCapture(model)(batch, request) -> Trace`, as `capture(model, batch, request)`.

    The first pass for a request runs as it is, and explores the model; the second compiles, which
    takes a minute or so; those after it are fast. Beyond four requests it captures uncompiled.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._graphs: dict[Request, Callable[[dict[str, Tensor]], Trace] | None] = {}

    def __call__(self, batch: Mapping[str, Tensor], request: Request) -> Trace:
        """One pass. Raises LimbeckError as `capture`."""
        if request not in self._graphs:
            self._graphs[request] = None
            return capture(self.model, batch, request)
        if self._graphs[request] is None and len(self._graphs) <= _MOST:
            self._graphs[request] = torch.compile(
                lambda inputs: capture(self.model, inputs, request), backend=BACKEND
            )
        graph = self._graphs[request]
        if graph is None:
            return capture(self.model, batch, request)
        # Layer numbers are constants of a graph, though another graph has others.
        with torch._dynamo.config.patch(specialize_int=True):
            return graph({name: _of_any_size(value) for name, value in batch.items()})


def _of_any_size(value: Tensor) -> Tensor:
    """Examples and tokens may be of any number, and nothing else."""
    for dimension in range(min(value.dim(), 2)):
        torch._dynamo.maybe_mark_dynamic(value, dimension)
    return value
