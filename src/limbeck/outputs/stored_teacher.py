"""Teachers that return stored outputs: no model is run. Part of `limbeck.outputs`.

`CachedTeacher` reads the live teacher's outputs from before training, `StoredTeacher` outputs given instead of a
teacher. The latter loads no model: its `model` has no weights and layers, but has the classes,
and the shape of the layers that are stored.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from limbeck.activations import ActivationKey, Request, Trace
from limbeck.activations.forward import text_mask
from limbeck.functional.partial_logits import KeptTokens
from limbeck.input_transforms.input_transform import StepInputs, as_inputs
from limbeck.objectives import ModelShape
from limbeck.outputs.cache import StoredEntry
from limbeck.outputs.columns import FLOAT32, IDS, INDEX, REST, VALUES, OutputColumn, token_masks
from limbeck.outputs.mapped import MappedOutputs, training_entry
from limbeck.outputs.store import OutputStore
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import on_host, send
from limbeck.tasks.rules import THRESHOLDS
from limbeck.teachers.teacher import Teacher

STACKS = ("main", "decoder")
"""For a text-to-text model."""
_NO_LAYERS = ModelShape(0, 0, 0)


def by_layer(seen: Iterable[ActivationKey]) -> list[ActivationKey]:
    """By activation kind, then by layer."""
    return sorted(seen, key=lambda one: (one.what, one.stack, one.layer, one.pool or ""))


@dataclass(frozen=True)
class StoredParts:
    """What training reads of a store at random: one teacher's layers, or tokens of a vocabulary at every target token.

    Attributes:
        store: its folder.
        limit: bytes that all entries of the local cache together may take.
        shape: of the teacher's layers.
        columns: layers by activation kind.
        kept: the rule for a vocabulary's logits; None for layers.
    """

    store: OutputStore
    limit: int
    shape: ModelShape = _NO_LAYERS
    columns: dict[ActivationKey, OutputColumn] = field(default_factory=dict)
    kept: KeptTokens | None = None

    @classmethod
    def layers_of(cls, store: OutputStore, limit: int) -> "StoredParts | None":
        """The layers in a store; None if its teacher has no layers, or if their shape is unknown."""
        shape = store.manifest.teacher.shape
        if shape is None:
            return None
        columns = {column.seen: column for column in store.own_columns if column.seen is not None}
        return cls(store, limit, ModelShape.read(shape), columns)

    def absent(self, wanted: Request) -> list[ActivationKey]:
        """What of a request is not there, in order."""
        return by_layer(seen for seen in wanted.items if seen not in self.columns)

    def coarse(self, exact: Request) -> list[ActivationKey]:
        """The names stored in float16 that have to be in float32, in order."""
        there = (seen for seen in exact.items if seen in self.columns)
        return by_layer(seen for seen in there if self.columns[seen].dtype != FLOAT32)

    @property
    def stacks(self) -> Collection[str]:
        """Whose tokens there are."""
        return self.shape.stacks or ("main",) if self.kept is None else STACKS

    def of_rows(self, ids: np.ndarray) -> MappedOutputs:
        """Mapped into memory for some rows: example i is the row `ids[i]`.

        Raises:
            LimbeckError: as `training_entry`.
        """
        names = [column.name for column in self.columns.values()]
        names = names if self.kept is None else [IDS, VALUES, REST]
        return MappedOutputs(training_entry(self.store, ids, columns=names, limit=self.limit))


# As `limbeck.functional` floors values before a logarithm.
_SMALLEST_PROBABILITY = 1e-12
UNKNOWN_ROWS_FIX = "label these rows too (`limbeck label`), or leave them out: missing_outputs=drop"


@dataclass(frozen=True)
class GivenOutputs:
    """One teacher's outputs by row ids.

    Attributes:
        place: where they were read: a folder, a file, a URL.
        what: the type of stored values: `logits`, `probabilities`, `votes`, `score`, `margin`, `embedding`.
        classes: of the data, in the data's order; () of a number.
        ids: the rows that it knows, ascending, int64 (n,).
        read: stored values of some of these rows (n, C), in the order of the data's classes.
        about: its entry in a record: fingerprints, the teacher's name.
        parts: the parts of the store that training reads at random, if any; then `read` has no vocabulary's tokens.
        several: a row may have several classes, each independent.
        lists: of each of `ids` (n,) the list in which its score is known, up to a constant for all of the list
            (`limbeck.data.outputs_file`); None if scores are known absolutely.
        embedding: the size of an embedding, if outputs are embeddings of single texts; otherwise 0.
        thresholds: how likely each of several classes has to be (C,); () for ½.
    """

    place: str
    what: str
    classes: tuple[str, ...]
    ids: np.ndarray
    read: Callable[[np.ndarray], np.ndarray]
    about: dict[str, Any]
    parts: StoredParts | None = None
    several: bool = False
    lists: np.ndarray | None = None
    embedding: int = 0
    thresholds: tuple[float, ...] = ()

    @property
    def layers(self) -> StoredParts | None:
        """The stored outputs of the teacher's layers; None if they are unknown."""
        return None if self.tokens is not None else self.parts

    @property
    def tokens(self) -> KeptTokens | None:
        """For a text-to-text teacher, the rule for its logits over a vocabulary."""
        return None if self.parts is None else self.parts.kept

    def known_together(self, ids: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Which rows it knows together with others of their group, boolean (n,), by each row's group number (n,).

        If scores are known only within lists, the rows of the list that covers most of a group.
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
    """Stored values (n, C) as logits whose softmax gives them, float32; whose sigmoid, separately, with `several`.

    Probabilities p become ln max(p, 1e-12): their softmax at any temperature equals the softmax of the logits they
    were made from. Votes v of n become ln((v + 1/C) / (n + 1)), smoothed by one vote that all classes share, as few
    votes do not show that a class is impossible; with one for each class, few votes over many would have no effect.
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
    """The classes, and where the outputs were read: all that is known of a missing model."""

    model_type = "limbeck-absent"
    about: dict[str, Any] | None = None
    shape: dict[str, Any] | None = None


class AbsentModel(PreTrainedModel):
    """Stands where a teacher's model would: it has no weights, no layers, and is never run."""

    config_class = AbsentConfig

    def __init__(self, config: AbsentConfig) -> None:
        super().__init__(config)
        # On the batch's device: the outputs have to be there.
        self.register_buffer("place", torch.empty(0), persistent=False)
        shape = config.shape
        self.stated_shape = _NO_LAYERS if shape is None else ModelShape.read(shape)
        """The shape of its layers; all 0 if no layers are stored (`limbeck.objectives`)."""

    @property
    def device(self) -> torch.device:
        """Device of the placeholder buffer."""
        place = self.place
        assert isinstance(place, Tensor)
        return place.device

    def forward(self, **batch: Any) -> Any:
        """Raises LimbeckError: there is nothing to run."""
        raise LimbeckError(
            "the teacher is stored outputs, and no model to run", "name the model itself: --teacher"
        )


class AnsweringFromStore(Teacher):
    """A teacher that finds its outputs by a batch's `index`."""

    live = False
    why_live = ("cache: outputs of transformed inputs are not stored", "run with cache=never")
    """The error for inputs that change in every step, and its fix."""

    @abstractmethod
    def read(self, batch: Mapping[str, Tensor], request: Request) -> Trace:
        """The requested activations of the batch's examples, as stored; both on the host.

        Raises:
            LimbeckError: an example, or a thing to look at, that is not stored.
        """

    @abstractmethod
    def masks(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Which tokens of a batch are real, by stack."""

    def __call__(self, inputs: StepInputs | Mapping[str, Tensor], request: Request) -> Trace:
        """The requested activations of the batch's examples in float32, on the batch's device.

        Raises:
            LimbeckError: as `read`; inputs that are another thing in every step.
        """
        inputs = as_inputs(inputs)
        if not inputs.as_stored:
            assert inputs.transform is not None
            wrong, fix = self.why_live
            raise LimbeckError(
                f"{wrong} ({inputs.transform.name}: {inputs.transform.why_live})", fix
            )
        batch, own = inputs.batch, self.own_tokens
        # Stored values of tokens come from the teacher's own tokens.
        read = batch if own is None or not own.to_align(request) else own(batch)
        found, device = self.read(on_host(read), request), batch[INDEX].device
        trace = Trace(
            # Sent as narrow as they are stored.
            values={seen: send(value, device).float() for seen, value in found.values.items()},
            logits=None if found.logits is None else send(found.logits, device).float(),
            masks=self.masks(read),
            partial=None if found.partial is None else found.partial.on(device),
        )
        return trace if own is None else own.aligned(trace, batch)


class CachedTeacher(AnsweringFromStore):
    """A live teacher's outputs, read from an entry of the local cache.

    Args:
        teacher: the model of the outputs.
        entry: its folder.
        fresh: how many rows the model ran on to build the entry for this run; 0 if it was there.
    """

    def __init__(self, teacher: Teacher, entry: StoredEntry, *, fresh: int = 0) -> None:
        super().__init__(teacher.model)
        self.inputs, self.own_tokens = teacher.inputs, teacher.own_tokens
        self.entry = entry
        self.fresh = fresh
        self.built_seconds = entry.outputs.costs["seconds"] if fresh else 0.0
        self.mapped = MappedOutputs(entry)

    def read(self, batch: Mapping[str, Tensor], request: Request) -> Trace:
        """From the entry; other lengths than were stored are an error too."""
        return self.mapped.trace(request, batch[INDEX], partial(self.masks, batch))

    def masks(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As the model's own pass has them."""
        return token_masks(self.model, batch)


class StoredTeacher(AnsweringFromStore):
    """Logits and layers from outputs that were given instead of a model.

    Embeddings (B, d) are its logits, as for an embedding model. For a text-to-text teacher they are the kept part of
    its logits over the vocabulary, at every token of the targets.

    Args:
        outputs: of one teacher.
    """

    why_live = (
        "outputs: outputs of transformed inputs are not stored",
        "leave the transform out, or give the teacher's model",
    )

    def __init__(self, outputs: GivenOutputs) -> None:
        classes, layers = outputs.classes or ("LABEL_0",), outputs.layers
        shape = _NO_LAYERS if layers is None else layers.shape
        config = AbsentConfig(
            id2label=dict(enumerate(classes)),
            about=outputs.about,
            shape=replace(shape, embedding=outputs.embedding).written(),
        )
        head = "" if outputs.embedding else "ForSequenceClassification"
        config.architectures = [f"Absent{head}"]
        if outputs.thresholds:
            setattr(config, THRESHOLDS, [*outputs.thresholds])
        super().__init__(AbsentModel(config))
        self.outputs = outputs
        self._logits = torch.empty(0, len(classes))
        # Numbers of examples, ascending, and the position of each one's row: a tenth of a dict's memory.
        self._numbers = self._places = self._ids = np.empty(0, dtype=np.int64)
        self._mapped: MappedOutputs | None = None

    def on_rows(
        self, index: Sequence[int] | np.ndarray, ids: np.ndarray, silent: np.ndarray | None = None
    ) -> Self:
        """The same teacher for certain examples: their numbers, and the ids of the rows they are.

        Args:
            index: the examples' numbers, (n,); if a number occurs twice the last row counts.
            ids: of their rows, (n,).
            silent: numbers of examples without such rows; their logits are 0, and callers must not use them.

        Raises:
            LimbeckError: rows of which it knows nothing.
        """
        other = copy(self)
        self.outputs.check_known(ids)
        if self.outputs.tokens is None:
            found = torch.from_numpy(self.outputs.logits(ids))
            other._logits = torch.cat([found, torch.zeros(1, found.shape[1])])
        numbers, places = np.asarray(index), np.arange(len(ids))
        if silent is not None:
            numbers = np.concatenate([numbers, silent])
            places = np.concatenate([places, np.full(len(silent), len(ids))])
        order = np.argsort(numbers, kind="stable")
        other._numbers, other._places = numbers[order].astype(np.int64), places[order]
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

    def read(self, batch: Mapping[str, Tensor], request: Request) -> Trace:
        """Logits from memory; layers and tokens are memory-mapped at the first request."""
        numbers = batch[INDEX].numpy()
        at = np.searchsorted(self._numbers, numbers, side="right") - 1
        if (at < 0).any() or (self._numbers[at] != numbers).any():
            raise LimbeckError(
                f"outputs: {self.outputs.place} is not bound to these examples",
                "train on the rows that it was given for",
            )
        places = torch.from_numpy(self._places[at])
        self._check_held(request)
        kept = self.outputs.tokens
        trace = Trace()
        if request.items or kept is not None:
            parts = self.outputs.parts
            assert parts is not None  # looked at
            self._mapped = self._mapped or parts.of_rows(self._ids)
            asked = request if kept is not None else Request(request.items)
            trace = self._mapped.trace(asked, places, partial(self.masks, batch))
        if kept is None:
            trace.logits = self._logits[places]
        return trace

    def _check_held(self, request: Request) -> None:
        """Raise LimbeckError for layers that are not stored, or another part of a vocabulary than is kept."""
        outputs = self.outputs
        absent = request.items if outputs.layers is None else outputs.layers.absent(request)
        if absent:
            raise LimbeckError(
                f"outputs: {outputs.place} holds {outputs.what}, and "
                f"{', '.join(sorted(map(str, absent)))} is requested",
                "compare the logits (method kd), or give the teacher's model",
            )
        if outputs.tokens not in (None, request.tokens):
            raise LimbeckError(
                f"outputs: {outputs.place} keeps {outputs.tokens} of its vocabulary, and "
                f"{request.tokens or 'all logits'} is requested",
                "request the stored part: objectives.NAME.tokens",
            )

    def masks(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tokens by the student's tokenizer, if there are stored tokens to align them with."""
        parts = self.outputs.parts
        stacks = () if parts is None else parts.stacks
        found = {name: text_mask(batch, decoder=name == "decoder") for name in stacks}
        return {name: mask for name, mask in found.items() if mask is not None}
