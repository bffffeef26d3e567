"""Which forward passes a model has run, and how far each was padded: what its FLOPs are counted from.

Part of `limbeck.activations`. A pass is noted by what decides its cost; sizes are read off the tensors'
shapes, so that nothing waits for a device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations.request import ActivationKey, Request
from limbeck.activations.trace import Trace

_COSTLY = ("probabilities", "scores")
"""Maps that capture multiplies out for itself; whatever else it records was computed anyway."""


class Pass(NamedTuple):
    """A forward pass over one example.

    `sizes`: padded tokens of the main stack and, where there is one, of the decoder; or an image's
    height and width. `gradient`: whether a backward pass followed.
    """

    request: Request
    sizes: tuple[int, ...]
    gradient: bool


class Passes:
    """A model's passes: examples by kind of pass."""

    def __init__(self) -> None:
        self.examples: Counter[Pass] = Counter()

    def add(
        self,
        model: PreTrainedModel,
        batch: Mapping[str, Tensor],
        request: Request,
        *,
        gradient: bool,
    ) -> Pass:
        """Note a pass over a batch, padding and all, and return its kind."""
        kind = Pass(_deciding(request), _sizes(model, batch), gradient)
        if request.items or request.logits:  # asked for nothing, a model does not run
            self.examples[kind] += _rows(batch)
        return kind

    def watch(
        self, trace: Trace, kind: Pass, rows: int, leaving_out: Iterable[ActivationKey] = ()
    ) -> None:
        """Note a backward pass of a pass noted without, if a gradient ever comes back to its trace."""
        waiting = [True]

        def came_back(_: Tensor) -> None:
            if waiting:
                waiting.clear()
                self.examples[kind] -= rows
                self.examples[kind._replace(gradient=True)] += rows

        free = set(leaving_out)
        found = [value for seen, value in trace.values.items() if seen not in free]
        for value in [*found, *([] if trace.logits is None else [trace.logits])]:
            if value.requires_grad:
                value.register_hook(came_back)

    def state(self) -> list[dict[str, Any]]:
        """For a checkpoint, in JSON's own types."""
        return [
            {
                "items": sorted(map(list, kind.request.items), key=str),
                "logits": kind.request.logits,
                "sizes": list(kind.sizes),
                "gradient": kind.gradient,
                "examples": examples,
            }
            for kind, examples in self.examples.items()
            if examples
        ]

    @classmethod
    def of(cls, *states: Iterable[Mapping[str, Any]]) -> Passes:
        """What `state` gave, of several processes all together."""
        passes = cls()
        for entry in (entry for state in states for entry in state):
            items = frozenset(ActivationKey(*item) for item in entry["items"])
            request = Request(items, entry["logits"])
            kind = Pass(request, tuple(entry["sizes"]), entry["gradient"])
            passes.examples[kind] += entry["examples"]
        return passes


@lru_cache(maxsize=1024)
def _deciding(request: Request) -> Request:
    """As much of a request as decides what its pass costs: random layers come to few kinds."""
    deepest: dict[str, ActivationKey] = {}
    for seen in sorted(request.items, key=str):
        known = deepest.get(seen.stack)
        if known is None or seen.layer > known.layer:
            deepest[seen.stack] = seen._replace(pool=None)
    costly = {seen for seen in request.items if seen.what in _COSTLY}
    return Request(
        frozenset(costly | (set() if request.logits else set(deepest.values()))), request.logits
    )


def _sizes(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> tuple[int, ...]:
    tokens = _first(batch, "input_ids", "inputs_embeds")
    if tokens is None:
        return tuple(batch[model.main_input_name].shape[-2:])
    sizes: tuple[int, ...] = (tokens.shape[1],)
    if getattr(model.config, "is_encoder_decoder", False):
        target = _first(batch, "decoder_input_ids", "decoder_inputs_embeds", "labels")
        if target is not None and target.dim() > 1:
            sizes += (target.shape[1],)
    return sizes


def _rows(batch: Mapping[str, Tensor]) -> int:
    return len(next(iter(batch.values())))


def _first(batch: Mapping[str, Tensor], *names: str) -> Tensor | None:
    return next((batch[name] for name in names if batch.get(name) is not None), None)
