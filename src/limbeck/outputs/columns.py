"""The layout of a teacher's outputs for one example in a table: one column per activation.

Part of `limbeck.outputs`. A pooled state has one size for all examples; token states, attention and
relations have the example's own numbers of tokens in their shape, counted in their own stack,
and are stored without padding.
Hidden states and attention are float16 unless exactness is requested; logits and the other outputs of the head
are float32.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from datasets import Features, LargeList, List, Value
from torch import Tensor
from transformers import PreTrainedModel

from limbeck import activations
from limbeck.activations.request import StackName, What
from limbeck.functional.partial_logits import PartialLogits
from limbeck.support.errors import LimbeckError, Problem, raise_problems
from limbeck.support.settings import Pool

# Where an example's tokens are in a padded batch, in each stack that has tokens of its own.


TokensOf = Literal["main", "decoder"]
"""The stack whose tokens these are: the only stack or the encoder, or the decoder."""
Masks = Mapping[str, Tensor]
"""By stack, which tokens of a batch are real (B, N)."""
Lengths = Mapping[TokensOf, np.ndarray]
"""By stack, how many tokens each example has (n)."""


class Span(NamedTuple):
    """Neighbouring places: the first of them, and how many there are."""

    first: int = 0
    tokens: int = 0

    @property
    def slice(self) -> slice:
        """To cut them out."""
        return slice(self.first, self.first + self.tokens)


class Own(NamedTuple):
    """One example's places in a batch; without a decoder they are the same twice."""

    main: Span
    decoder: Span

    def of(self, tokens: TokensOf) -> Span:
        """Those of one stack."""
        return self.decoder if tokens == "decoder" else self.main


NOWHERE = Own(Span(), Span())


def token_masks(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The masks of all stacks, as in the captured activations of a complete pass."""
    # A network without layers over tokens has one of an image.
    names = activations.stack_names(model) or ("main",)
    return {name: activations.token_mask(model, batch, name) for name in names}


def places(masks: Masks) -> list[Own]:
    """The positions of each example's real tokens."""
    main = _spans(masks["main"])
    return list(map(Own, main, _spans(masks["decoder"]) if "decoder" in masks else main))


def whole(masks: Masks) -> Own:
    """All places of a batch, padding and all."""
    main = Span(0, masks["main"].shape[1])
    return Own(main, Span(0, masks["decoder"].shape[1]) if "decoder" in masks else main)


def _spans(mask: Tensor) -> list[Span]:
    mask = mask.cpu()  # once
    return list(map(Span, mask.int().argmax(1).tolist(), mask.sum(1).tolist()))


Stored = Literal["float16", "float32", "int32"]
"""The stored type of a value."""
Size = int | TokensOf
"""In a shape: a number, or as many as the example has tokens there."""
INDEX: Literal["index"] = "index"
ROW = "row"
"""The column of rows' ids (`limbeck.data.row_ids`)."""
LOGITS = "logits"
PROBABILITIES = "probabilities"
FLOAT32 = "float32"
IDS, VALUES, REST = "logits-ids", "logits-values", "logits-rest"
"""The rule for logits over a vocabulary, of which some tokens are kept (`limbeck.functional.partial_logits`)."""
MEMBER = ":"
"""Between the names of a team's member and of its output: `large:logits`."""

_KEY_NAME = re.compile(
    rf"({'|'.join(get_args(What))})-({'|'.join(get_args(StackName))})-(\d+)(?:-({'|'.join(get_args(Pool))}))?"
)

# Above it float16 has no number.
LARGEST_FLOAT16 = 65504.0


class Ask(NamedTuple):
    """The activations a run may request of the teacher, and the part for which float16 is too coarse."""

    request: activations.Request
    exact: frozenset[activations.ActivationKey] = frozenset()

    def __or__(self, other: "Ask") -> "Ask":
        return Ask(self.request | other.request, self.exact | other.exact)

    def names(self) -> list[str]:
        """In words, sorted."""
        words = [f"{seen}{' (float32)' * (seen in self.exact)}" for seen in self.request.items]
        kept = "" if self.request.tokens is None else f" {self.request.tokens}"
        return sorted(words) + [f"logits{kept}"] * self.request.logits


@dataclass(frozen=True)
class OutputColumn:
    """One stored quantity.

    Attributes:
        name: in the table.
        shape: of one example; the name of a stack represents its own number of tokens there.
        dtype: float16 or float32; int32 of ids and counts.
        seen: its activation key; None for the logits.
    """

    name: str
    shape: tuple[Size, ...]
    dtype: Stored
    seen: activations.ActivationKey | None

    @property
    def fixed(self) -> bool:
        """Whether every example takes the same room."""
        return all(isinstance(size, int) for size in self.shape)

    def sizes(self, own: Own = NOWHERE) -> tuple[int, ...]:
        """The shape of an example with this number of tokens; a fixed shape is the same for every example."""
        return tuple(size if isinstance(size, int) else own.of(size).tokens for size in self.shape)

    def bytes(self, lengths: Lengths) -> int:
        """Room of examples of these lengths."""
        numbers = np.ones(len(lengths["main"]), dtype=np.int64)
        for size in self.shape:
            numbers *= size if isinstance(size, int) else lengths[size]
        return int(numbers.sum()) * self._itemsize

    @property
    def _itemsize(self) -> int:
        return np.dtype(self.dtype).itemsize

    def among_padding(self, own: Own) -> tuple[slice, ...]:
        """The position of an example's value in an array as wide as its batch."""
        return tuple(
            slice(None) if isinstance(size, int) else own.of(size).slice for size in self.shape
        )

    def of(self, trace: activations.Trace) -> Tensor:
        """The tensor of a batch, (B, …)."""
        if self.seen is not None:
            return trace[self.seen]
        if trace.partial is not None:
            return _parts(trace.partial)[self.name]
        assert trace.logits is not None  # requested
        return trace.logits

    @property
    def feature(self) -> List | LargeList:
        """Its type in the table: values in one row, flat."""
        value = Value(self.dtype)
        if self.fixed:
            return List(value, length=prod(self.sizes()))
        return LargeList(value)


@dataclass(frozen=True)
class OutputLayout:
    """All columns of a store, or the columns of a request."""

    columns: tuple[OutputColumn, ...]

    @classmethod
    def of(cls, trace: activations.Trace, ask: Ask) -> "OutputLayout":
        """The columns that hold the requested activations, from the captured activations of a batch."""
        columns = [_column(seen, trace[seen], seen in ask.exact) for seen in ask.request.items]
        columns.sort(key=lambda column: column.name)
        if trace.logits is not None:
            # If there is a decoder, the head is on top of it.
            sequence: TokensOf = "decoder" if "decoder" in trace.masks else "main"
            tokens: tuple[Size, ...] = (sequence,) if trace.logits.dim() == 3 else ()
            columns.append(OutputColumn(LOGITS, (*tokens, trace.logits.shape[-1]), "float32", None))
        if trace.partial is not None:
            columns += _columns_of(trace.partial, "decoder" if "decoder" in trace.masks else "main")
        return cls(tuple(columns))

    def features(self, *, row_ids: bool) -> Features:
        """The schema of a mapped table; with `row_ids` its rows can be identified elsewhere too."""
        rows = {ROW: Value("int64")} if row_ids else {}
        return Features(
            {INDEX: Value("int64")}
            | rows
            | {column.name: column.feature for column in self.columns}
        )

    def bytes(self, lengths: Lengths) -> int:
        """Room of examples of these lengths."""
        return sum(column.bytes(lengths) for column in self.columns)


def _parts(partial: PartialLogits) -> dict[str, Tensor]:
    return {IDS: partial.ids, VALUES: partial.values, REST: partial.rest}


def _columns_of(partial: PartialLogits, sequence: TokensOf) -> list[OutputColumn]:
    counts: Stored = "float32" if partial.kept.how == "top" else "int32"
    size = partial.kept.count
    return [
        OutputColumn(IDS, (sequence, size), "int32", None),
        OutputColumn(VALUES, (sequence, size), counts, None),
        OutputColumn(REST, (sequence,), "float32", None),
    ]


def _column(seen: activations.ActivationKey, value: Tensor, exact: bool) -> OutputColumn:
    queries: TokensOf = "decoder" if seen.stack in ("decoder", "cross") else "main"
    keys: TokensOf = "decoder" if seen.stack == "decoder" else "main"
    width = value.shape[-1]
    shape: tuple[Size, ...]
    if seen.what == "hidden":
        shape = (width,) if seen.pool else (queries, width)
    elif seen.what == "query":
        shape = (value.shape[1], queries, width)
    elif seen.what in ("key", "value"):
        shape = (value.shape[1], keys, width)
    else:
        shape = (value.shape[1], queries, keys)
    return OutputColumn(name_of_key(seen), shape, "float32" if exact else "float16", seen)


def column_of_values(name: str, values: Any) -> OutputColumn:
    """The column that holds a labeller's output of some rows: (B, …), or an object array of arrays per token.

    Raises:
        LimbeckError: values that are neither float16 nor float32 (nor int32, of tokens kept of a vocabulary), or
            arrays of different rank.
    """
    ragged = values.dtype == object
    one = values[0] if ragged else values
    if name in (IDS, VALUES, REST):
        return OutputColumn(name, ("decoder", *one.shape[1:]), str(one.dtype), None)  # type: ignore[arg-type]  # as `_columns_of` has them
    if str(one.dtype) not in ("float16", "float32") or not (ragged or values.ndim):
        raise LimbeckError(
            f"output {name!r}: values of type {one.dtype}, expected float16 or float32 for each row",
            "convert them in the labeller's score",
        )
    seen = key_of_name(name)
    if not ragged:
        return OutputColumn(name, tuple(values.shape[1:]), str(one.dtype), seen)  # type: ignore[arg-type]  # looked at above
    if seen is None:
        return OutputColumn(name, ("main", *one.shape[1:]), str(one.dtype), None)  # type: ignore[arg-type]  # looked at above
    column = _column(seen, torch.from_numpy(one)[None], exact=one.dtype == np.float32)
    return replace(column, name=name)


def name_of_key(seen: activations.ActivationKey) -> str:
    """What its column is called."""
    return "-".join([seen.what, seen.stack, str(seen.layer), *([seen.pool] if seen.pool else [])])


def key_of_name(name: str) -> activations.ActivationKey | None:
    """The inverse of `name_of_key`, whichever member's it is; None for logits and other outputs."""
    found = _KEY_NAME.fullmatch(name.rpartition(MEMBER)[2])
    if found is None:
        return None
    what, stack, layer, pool = found.groups()
    return activations.ActivationKey(what, int(layer), pool, stack)  # type: ignore[arg-type]  # matched above


def storage_type(column: OutputColumn) -> torch.dtype:
    """The storage types of a column's values."""
    types = {"float16": torch.float16, "float32": torch.float32, "int32": torch.int32}
    return types[column.dtype]


# The outputs of a model that can be stored, in the syntax of `limbeck label --outputs`.


_POOLS = "|".join(get_args(Pool))
_HIDDEN = "hidden"
_WHATS: dict[str, What] = {
    _HIDDEN: "hidden",
    "attention": "probabilities",
    "scores": "scores",
    "query": "query",
    "key": "key",
    "value": "value",
}
_LAYERED = re.compile(rf"({'|'.join(_WHATS)}):(-?\d+)(?::({_POOLS}))?(:{FLOAT32})?")
CHOICES = (
    "logits, probabilities, hidden:LAYER[:cls|mean|last], and attention, scores, query, key, value:LAYER; "
    f"layers in float16, or in float32 with :{FLOAT32} behind them; of a text-to-text model logits:topK, logits:sampleN"
)
"""The outputs that can be requested of a model, as messages list them."""


@dataclass(frozen=True)
class ModelOutputs:
    """The requested outputs of a model.

    Attributes:
        request: what its passes record.
        logits: whether the logits themselves are kept.
        probabilities: whether the classes' are.
        exact: layers that are kept in float32; others are in float16.
    """

    request: activations.Request
    logits: bool
    probabilities: bool
    exact: frozenset[activations.ActivationKey] = frozenset()

    @classmethod
    def parse(cls, words: Sequence[str], model: PreTrainedModel) -> "ModelOutputs":
        """From `--outputs`; layers count from 1, −1 is the last, 0 the embeddings.

        Raises:
            LimbeckError: an unknown output, or a layer the model does not have.
        """
        request, exact, problems = activations.Request(), activations.Request(), list[Problem]()
        for word in words:
            if word in (LOGITS, PROBABILITIES):
                request |= activations.Request.of_logits()
                continue
            found = _LAYERED.fullmatch(word)
            if found is None or (found[1] != _HIDDEN and found[3]):
                problems.append(Problem(f"outputs: unknown {word!r}", f"choices: {CHOICES}"))
                continue
            layer, depth = int(found[2]), activations.number_of_layers(model)
            layer += (depth + 1) * (layer < 0)
            if not (found[1] != _HIDDEN) <= layer <= depth:
                problems.append(_no_such_layer(word, depth, embeddings=found[1] == _HIDDEN))
                continue
            key = activations.ActivationKey(_WHATS[found[1]], layer, found[3])  # type: ignore[arg-type]  # the pattern matches only the type's words
            one = activations.Request(frozenset([key]))
            request |= one
            exact |= one if found[4] else activations.Request()
        raise_problems(problems)
        return cls(request, LOGITS in words, PROBABILITIES in words, exact.items)


def _no_such_layer(word: str, depth: int, *, embeddings: bool) -> Problem:
    return Problem(
        f"outputs: {word}: the model has layers 1 to {depth}",
        f"choices: 1 to {depth}, counted from the end -{depth} to -1"
        + (", and 0, the embeddings" if embeddings else ""),
    )


def word_of(seen: activations.ActivationKey, *, exact: bool = False) -> str | None:
    """The word that asks for it; None for what `limbeck label` does not store."""
    if seen.stack != "main":
        return None
    words = {what: word for word, what in _WHATS.items()}
    parts = [words[seen.what], str(seen.layer), *([seen.pool] if seen.pool else [])]
    return ":".join(parts + [FLOAT32] * exact)
