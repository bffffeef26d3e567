"""A teacher of whom nothing is there but its outputs. Part of `limbeck.outputs`.

No model is loaded. What asks for the teacher's model finds one without weights and layers that knows the classes, and
the shape of the layers that are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from limbeck.activations import ActivationKey, Request, Trace
from limbeck.activations.forward import text_mask
from limbeck.functional.partial_logits import KeptTokens
from limbeck.input_transforms.input_transform import StepInputs, as_inputs
from limbeck.objectives import ModelShape
from limbeck.outputs.columns import IDS, INDEX, REST, VALUES, OutputColumn
from limbeck.outputs.read import MappedOutputs
from limbeck.outputs.store import OutputStore
from limbeck.outputs.training_entry import training_entry
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import on_host, send
from limbeck.teachers.teacher import Teacher

# Layers of a teacher in a store, for terms that compare them without the teacher.


FLOAT32 = "float32"


def by_layer(seen: Iterable[ActivationKey]) -> list[ActivationKey]:
    """By what they are, then by layer."""
    return sorted(seen, key=lambda one: (one.what, one.stack, one.layer, one.pool or ""))


@dataclass(frozen=True)
class StoredLayers:
    """What a store holds of one teacher's layers.

    Attributes:
        store: where they lie.
        shape: of the teacher.
        limit: bytes that all entries of the local cache together may take.
    """

    store: OutputStore
    shape: ModelShape
    limit: int
    columns: dict[ActivationKey, OutputColumn] = field(default_factory=dict)
    """By what they are."""

    @classmethod
    def of(cls, store: OutputStore, limit: int) -> StoredLayers | None:
        """Those of a store; None of one whose teacher has none, or does not say its shape."""
        shape = store.manifest.teacher.shape
        if shape is None:
            return None
        columns = {column.seen: column for column in store.own_columns if column.seen is not None}
        return cls(store, ModelShape.read(shape), limit, columns)

    def absent(self, wanted: Request) -> list[ActivationKey]:
        """What of a request is not there, in order."""
        return by_layer(seen for seen in wanted.items if seen not in self.columns)

    def coarse(self, exact: Request) -> list[ActivationKey]:
        """What is stored in float16 and has to be in float32, in order."""
        there = (seen for seen in exact.items if seen in self.columns)
        return by_layer(seen for seen in there if self.columns[seen].dtype != FLOAT32)

    @property
    def made_for(self) -> tuple[str | None, int | None]:
        """The digest of the tokenizer and the length limit by which token states were made, as far as is known."""
        about = self.store.manifest.teacher.fingerprint
        tokenizer, length = about.get("tokenizer"), about.get("max_length")
        return (
            tokenizer if isinstance(tokenizer, str) else None,
            length if isinstance(length, int) else None,
        )

    def of_rows(self, ids: np.ndarray) -> MappedOutputs:
        """Mapped into memory for some rows: example i is the row `ids[i]`.

        Raises:
            LimbeckError: as `training_entry`.
        """
        names = [column.name for column in self.columns.values()]
        return MappedOutputs(training_entry(self.store, ids, columns=names, limit=self.limit))


# What a store keeps of a text-to-text teacher's logits, for terms that look at as much.


STACKS = ("main", "decoder")
"""Of a text-to-text model."""


@dataclass(frozen=True)
class StoredTokens:
    """Tokens of a vocabulary at every token of each row's target.

    Attributes:
        store: where they lie.
        kept: by which rule.
        limit: bytes that all entries of the local cache together may take.
    """

    store: OutputStore
    kept: KeptTokens
    limit: int

    def of_rows(self, ids: np.ndarray) -> MappedOutputs:
        """Mapped into memory for some rows: example i is the row `ids[i]`.

        Raises:
            LimbeckError: as `training_entry`.
        """
        columns = (IDS, VALUES, REST)
        return MappedOutputs(training_entry(self.store, ids, columns=columns, limit=self.limit))


# Outputs that a run is given in a teacher's place, as logits of the data's classes.


# As `limbeck.functional` floors what stands before a logarithm.
_SMALLEST_PROBABILITY = 1e-12
UNKNOWN_ROWS_FIX = "label these rows too (`limbeck label`), or leave them out: missing_outputs=drop"


@dataclass(frozen=True)
class GivenOutputs:
    """One teacher's outputs by row ids.

    Attributes:
        place: where they were read: a folder, a file, a URL.
        what: what is stored: `logits`, `probabilities`, `votes`, `score`, `margin`, `embedding`.
        classes: of the data, in the data's order; () of a number.
        ids: the rows that it knows, ascending, int64 (n,).
        read: stored values of some of these rows (n, C), in the order of the data's classes.
        about: what a record keeps of it: fingerprints, the teacher's name.
        layers: what is stored of the teacher's layers; None where they are not known at all.
        tokens: of a text-to-text teacher, what is stored of its logits over a vocabulary; nothing is to `read` then.
        lists: of each of `ids` (n,) the list in which its score is known, but for a number that all of the list have
            (`limbeck.data.margins`); None where scores are known by themselves.
        embedding: numbers of an embedding, where outputs are embeddings of each text by itself; else 0.
    """

    place: str
    what: str
    classes: tuple[str, ...]
    ids: np.ndarray
    read: Callable[[np.ndarray], np.ndarray]
    about: dict[str, Any]
    layers: StoredLayers | None = None
    tokens: StoredTokens | None = None
    several: bool = False
    lists: np.ndarray | None = None
    embedding: int = 0

    def known_together(self, ids: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Which rows it knows beside the others of their group, boolean (n,), by the number of each one's group (n,).

        Where scores are known within lists alone, those of the list that has most of a group.
        """
        known = self.known(ids)
        if self.lists is None or not known.any():
            return known
        lists = self.lists[np.searchsorted(self.ids, ids[known])]
        both, counts = np.unique(np.stack([groups[known], lists]), axis=1, return_counts=True)
        # By group, the greatest count first.
        order = np.lexsort([-counts, both[0]])
        numbers, firsts = np.unique(both[0][order], return_index=True)
        best = both[1][order][firsts]
        known[known] = lists == best[np.searchsorted(numbers, groups[known])]
        return known

    def known(self, ids: np.ndarray) -> np.ndarray:
        """Which rows it knows, boolean (n,)."""
        return np.isin(ids, self.ids)

    def logits(self, ids: np.ndarray) -> np.ndarray:
        """Logits of some rows, float32 (n, C), or numbers (n, 1) (`as_logits`).

        Raises:
            LimbeckError: rows that it does not know, with their number.
        """
        self.check_known(ids)
        return as_logits(self.what, self.read(ids), several=self.several)

    def check_known(self, ids: np.ndarray) -> None:
        """Raise LimbeckError for rows that it does not know, with their number."""
        absent = len(np.unique(ids[~self.known(ids)]))
        if absent:
            raise LimbeckError(
                f"outputs: {self.place} knows nothing of {absent} of {len(np.unique(ids))} rows",
                UNKNOWN_ROWS_FIX,
            )


def as_logits(what: str, values: np.ndarray, *, several: bool = False) -> np.ndarray:
    """Stored values (n, C) as logits whose softmax they are, float32; whose sigmoid, each by itself, with `several`.

    Probabilities p become ln max(p, 1e-12): their softmax at any temperature is that of the logits they
    were made from. Votes v of n become ln((v + 1/C) / (n + 1)), smoothed by one vote that all classes share, as few
    votes do not tell that a class is impossible; by one for each class few votes about many would say nothing.
    """
    if what in ("probabilities", "votes"):
        values = values.astype(np.float64)
    if what == "probabilities" and several:
        sure = np.clip(values, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
        values = np.log(sure) - np.log1p(-sure)
    elif what == "probabilities":
        values = np.log(np.maximum(values, _SMALLEST_PROBABILITY))
    elif what == "votes":
        smoothed = values + 1.0 / values.shape[-1]
        values = np.log(smoothed / smoothed.sum(axis=-1, keepdims=True))
    return values.astype(np.float32, copy=False)


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
