"""A teacher of whom nothing is there but its outputs. Part of `limbeck.teachers.outputs`.

No model is loaded. What asks for the teacher's model finds one without weights and layers that knows the classes, and
the shape of the layers that are stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from limbeck.activations import Request, Trace
from limbeck.activations.masks import text_mask
from limbeck.input_transforms.step_inputs import StepInputs, as_inputs
from limbeck.objectives import ModelShape
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import on_host, send
from limbeck.teachers.outputs.columns import INDEX
from limbeck.teachers.outputs.given_outputs import GivenOutputs
from limbeck.teachers.outputs.mapped_outputs import MappedOutputs
from limbeck.teachers.outputs.stored_tokens import STACKS, StoredTokens
from limbeck.teachers.teacher import Teacher


class AbsentConfig(PretrainedConfig):
    """Classes, and what the outputs were read from: all that is known of a model that is not there."""

    model_type = "limbeck-absent"
    about: dict[str, Any] | None = None
    shape: dict[str, Any] | None = None


class AbsentModel(PreTrainedModel):
    """Stands where a teacher's model would: it has no weights, no layers, and is never run."""

    config_class = AbsentConfig

    def __init__(self, config: AbsentConfig) -> None:
        super().__init__(config)
        # Where it is asked to be: the outputs go where the batch is.
        self.register_buffer("place", torch.empty(0), persistent=False)
        shape = config.shape
        self.stated_shape = ModelShape(0, 0, 0) if shape is None else ModelShape.read(shape)
        """Of its layers; all 0 where none are stored (`limbeck.objectives`)."""

    @property
    def device(self) -> torch.device:
        """Of what it has."""
        place = self.place
        assert isinstance(place, Tensor)
        return place.device

    def forward(self, **batch: Any) -> Any:
        """Raises LimbeckError: there is nothing to run."""
        raise LimbeckError(
            "the teacher is stored outputs, and no model to run", "name the model itself: --teacher"
        )


class _Bound(NamedTuple):
    """Where examples lie, by their numbers: of millions a tenth of what a dict would hold.

    `numbers` (n,) ascend, `places` (n,) are theirs; both int64.
    """

    numbers: np.ndarray
    places: np.ndarray

    @classmethod
    def of(cls, numbers: np.ndarray, places: np.ndarray) -> Self:
        """In any order; of a number that stands twice the last place counts."""
        order = np.argsort(numbers, kind="stable")
        return cls(numbers[order].astype(np.int64), places[order].astype(np.int64))

    def at(self, numbers: np.ndarray) -> np.ndarray | None:
        """The places of some examples, (m,); None where one is not known."""
        found = np.searchsorted(self.numbers, numbers, side="right") - 1
        if (found < 0).any() or (self.numbers[found] != numbers).any():
            return None
        return self.places[found]


class StoredTeacher(Teacher):
    """Logits and layers by a batch's `index`, from outputs that were given in the place of a model.

    Args:
        outputs: of one teacher.
    """

    def __init__(self, outputs: GivenOutputs) -> None:
        classes, layers = outputs.classes or ("LABEL_0",), outputs.layers
        shape = ModelShape(0, 0, 0) if layers is None else layers.shape
        config = AbsentConfig(
            id2label=dict(enumerate(classes)),
            about=outputs.about,
            shape=replace(shape, embedding=outputs.embedding).written(),
        )
        head = "" if outputs.embedding else "ForSequenceClassification"
        config.architectures = [f"Absent{head}"]
        super().__init__(AbsentModel(config))
        self.outputs = outputs
        self._logits = torch.empty(0, len(classes))
        self._places = _Bound.of(np.empty(0), np.empty(0))
        self._ids = np.empty(0, dtype=np.int64)
        self._mapped: MappedOutputs | None = None

    def on_rows(
        self, index: Sequence[int] | np.ndarray, ids: np.ndarray, silent: np.ndarray | None = None
    ) -> Self:
        """The same teacher for certain examples: their numbers, and the ids of the rows they are.

        Args:
            index: the examples' numbers, (n,).
            ids: of the rows that they are, (n,).
            silent: numbers of examples that are no such rows; their logits are 0, and nobody is to look at them.

        Raises:
            LimbeckError: rows of which it knows nothing.
        """
        other = copy(self)
        if self.outputs.tokens is None:
            found = torch.from_numpy(self.outputs.logits(ids))
            other._logits = torch.cat([found, torch.zeros(1, found.shape[1])])
        else:
            self.outputs.check_known(ids)
        numbers, places = np.asarray(index), np.arange(len(ids))
        if silent is not None:
            numbers = np.concatenate([numbers, silent])
            places = np.concatenate([places, np.full(len(silent), len(ids))])
        other._places = _Bound.of(numbers, places)
        other._ids, other._mapped = ids, None
        return other

    @property
    def columns(self) -> set[str]:
        """The number of an example alone."""
        return {INDEX}

    def reading(self, inputs: Any, own_tokens: Any = None) -> Self:
        """Itself: it reads no input."""
        return self

    def compile(self) -> Teacher:
        """Nothing is run. Returns itself."""
        return self

    def as_read(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The batch."""
        return batch

    def __call__(self, inputs: StepInputs | Mapping[str, Tensor], request: Request) -> Trace:
        """Logits (B, C) of the batch's examples and the layers that are asked for, float32, where the batch is.

        Of embeddings (B, d) they are the logits, as an embedding model has it.

        Of a text-to-text teacher what was kept of its logits over the vocabulary, at every token of the targets.

        Raises:
            LimbeckError: layers that are not stored; transformed inputs; an example without outputs.
        """
        inputs = as_inputs(inputs)
        if not inputs.as_stored:
            assert inputs.transform is not None
            raise LimbeckError(
                f"outputs: those of transformed inputs are not stored ({inputs.transform.name})",
                "leave the transform out, or give the teacher's model",
            )
        batch = inputs.batch
        found = self._places.at(on_host(batch)[INDEX].numpy())
        if found is None:
            raise LimbeckError(
                f"outputs: {self.outputs.place} is not bound to these examples",
                "train on the rows that it was given for",
            )
        places, device = found.tolist(), batch[INDEX].device
        trace = self._layers(Request(request.items), places, batch)
        if self.outputs.tokens is not None:
            return self._tokens(self.outputs.tokens, request, places, batch)
        trace.logits = send(self._logits[places], device)
        return trace

    def _tokens(
        self, tokens: StoredTokens, request: Request, places: list[int], batch: Mapping[str, Tensor]
    ) -> Trace:
        """What was kept of a vocabulary's logits; first of all it is mapped into memory."""
        if request.tokens != tokens.kept:
            raise LimbeckError(
                f"outputs: {self.outputs.place} keeps {tokens.kept} of its vocabulary, and "
                f"{request.tokens or 'all logits'} is asked for",
                "ask for what is kept: objectives.NAME.tokens",
            )
        if self._mapped is None:
            self._mapped = tokens.of_rows(self._ids)
        masks = partial(_masks, STACKS, on_host(batch))
        found = self._mapped.trace(request, torch.tensor(places), masks)
        assert found.partial is not None  # a store of tokens holds nothing else
        return Trace(masks=_masks(STACKS, batch), partial=found.partial.on(batch[INDEX].device))

    def _layers(self, request: Request, places: list[int], batch: Mapping[str, Tensor]) -> Trace:
        """What is asked for of some rows; first of all the store's layers are mapped into memory."""
        if not request.items:
            return Trace()
        layers = self.outputs.layers
        absent = request.items if layers is None else layers.absent(request)
        if layers is None or absent:
            raise LimbeckError(
                f"outputs: {self.outputs.place} holds {self.outputs.what}, and "
                f"{', '.join(sorted(map(str, absent)))} is asked for",
                "compare the logits (method kd), or give the teacher's model",
            )
        if self._mapped is None:
            self._mapped = layers.of_rows(self._ids)
        masks = partial(_masks, layers.shape.stacks, on_host(batch))
        found = self._mapped.trace(request, torch.tensor(places), masks)
        device = batch[INDEX].device
        return Trace(
            # Sent as narrow as they are stored.
            values={seen: send(value, device).float() for seen, value in found.values.items()},
            masks=_masks(layers.shape.stacks, batch),
        )


def _masks(stacks: Collection[str], batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Which tokens of a batch are real, by stack, as the student's tokenizer made them."""
    found = {name: text_mask(batch, decoder=name == "decoder") for name in stacks or ("main",)}
    return {name: mask for name, mask in found.items() if mask is not None}
