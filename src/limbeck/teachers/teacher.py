"""The teacher, live: a frozen model that answers requests and leaves no trace in the student.

A batch goes to the teacher first, and its `Trace` is what
objectives compare the student with. A `Teacher` is deliberately no `nn.Module`: set as an attribute
of a student or a trainer it is not registered, so it is never put into train mode, wrapped for
several processes, optimised or saved.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PretrainedConfig, PreTrainedModel

from limbeck import functional as F
from limbeck.activations import (
    ActivationKey,
    CastOnce,
    CompiledCapture,
    Passes,
    Request,
    Trace,
    capture,
)
from limbeck.activations.forward import text_mask
from limbeck.input_transforms.input_transform import StepInputs, as_inputs
from limbeck.students import load_model
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import device_of, is_spread, on_host, place, send
from limbeck.support.step_state import StepState

# The inputs of a model: by its own tokenizer, even if another's made the batch.
#
# They convert from the batch, which the student's tokenizer made, to a teacher. If both make the
# same token ids, the other inputs by a teacher's tokenizer (segment ids) travel with the rows in columns
# of its own.


TEACHER_COLUMN = "teacher_"
"""Prefix of the names of columns that no student reads."""

SPANS = "spans"
"""The column of each token's characters: (segment, start, end), one token after the other."""
Spans = tuple[Dataset, ...]


@dataclass(frozen=True)
class ModelInputs:
    """How a model's inputs are found in a batch that another model's tokenizer made.

    Attributes:
        own: by name of an input, the column that holds it.
        absent: inputs of the other model that this one's tokenizer does not make: it is not given them.
    """

    own: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()

    def of(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The batch as the model reads it.

        Raises:
            LimbeckError: the batch lacks a column of the model's own.
        """
        lost = sorted(set(self.own.values()) - batch.keys())
        if lost:
            raise LimbeckError(
                f"the batch has no {' and no '.join(lost)}, which the teacher reads",
                "train on the rows that the teacher's inputs were added to",
            )
        kept = {name: value for name, value in batch.items() if name not in self.absent}
        return kept | {name: batch[column] for name, column in self.own.items()}

    def of_rows(self, rows: Dataset) -> Dataset:
        """Encoded rows with nothing in them that only other models read."""
        others = [
            name
            for name in rows.column_names
            if name in self.absent or name in self.own or name.startswith(TEACHER_COLUMN)
        ]
        kept = rows.remove_columns([name for name in others if name not in self.own.values()])
        return kept.rename_columns({column: name for name, column in self.own.items()})


class OwnTokens:
    """A batch's examples as a teacher with another vocabulary reads them, found by their `index`.

    Args:
        rows: the training rows, encoded by the teacher's own tokenizer (or image processor).
        collate: makes a batch of some of them.
        spans: makes, when states of tokens are first requested, the `SPANS` of these rows as the student and as the
            teacher reads them; None where the two have no characters in common, as of images.
    """

    def __init__(self, rows: Any, collate: Any, spans: Callable[[], Spans] | None = None) -> None:
        self.rows = rows
        self.collate = collate
        self.spans = None if spans is None else cache(spans)
        self._place = {number: place for place, number in enumerate(rows["index"])}

    def __call__(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same examples in the same order.

        Raises:
            LimbeckError: the batch has no `index`, or one that is not among the rows.
        """
        found: dict[str, Tensor] = self.collate([self.rows[place] for place in self._places(batch)])
        return found

    def _places(self, batch: Mapping[str, Tensor]) -> list[int]:
        numbers = on_host(batch)["index"].tolist() if "index" in batch else [None]
        if any(number not in self._place for number in numbers):
            raise LimbeckError(
                "a teacher with a vocabulary of its own finds examples by their number, and the "
                "batch has others, or none, in a column named index",
                "train on the rows that the teacher was given",
            )
        return [self._place[number] for number in numbers]

    def only(self, numbers: Sequence[int]) -> "OwnTokens":
        """The same for some of the rows."""
        places, spans = [self._place[n] for n in numbers], self.spans
        some = None if spans is None else lambda: tuple(one.select(places) for one in spans())
        return OwnTokens(self.rows.select(places), self.collate, some)

    @staticmethod
    def to_align(request: Request) -> frozenset[ActivationKey]:
        """What of a request is about single tokens: pooled states and logits need no alignment."""
        return frozenset(seen for seen in request.items if seen.pool is None)

    def aligned(self, trace: Trace, batch: Mapping[str, Tensor]) -> Trace:
        """A teacher's activations of its own tokens, mapped to the student's by the characters that both cover.

        Args:
            trace: of the teacher's pass over its own tokens.
            batch: the examples as the student reads them.

        Raises:
            LimbeckError: the two have no characters in common.
        """
        own = self.to_align(Request(frozenset(trace.values)))
        if not own:
            return trace
        if self.spans is None:
            raise LimbeckError(
                "the tokens of teacher and student cannot be aligned, so their layers cannot be compared",
                "compare the logits (method kd) or pooled states, or choose models of one vocabulary",
            )
        places, mask, their_mask = self._places(batch), text_mask(batch), trace.mask()
        assert mask is not None  # of text, which has characters
        device = mask.device
        ours, theirs = (send(_padded(rows[places][SPANS]), device) for rows in self.spans())
        overlap = F.character_overlap(ours, theirs, mask, send(their_mask, device))
        values = {
            seen: _ALIGNED.get(seen.what, F.aligned_states)(overlap, value)
            if seen in own
            else value
            for seen, value in trace.values.items()
        }
        masks = {name: overlap.any(2) for name in trace.masks}
        return replace(trace, values=values, masks=masks, aligned=True)


_ALIGNED = {"probabilities": F.aligned_attention, "scores": F.aligned_scores}
"""Maps from tokens to tokens; all else is one vector a token."""


def _padded(spans: Sequence[Any]) -> Tensor:
    """Spans of some examples (B, longest, 3), each a list of numbers."""
    return pad_sequence([torch.as_tensor(one).view(-1, 3) for one in spans], batch_first=True)


class Teacher:
    """A model that teaches, in eval mode and without gradients.

    Args:
        model: any transformers model. It is frozen in place: no parameter requires a gradient.
        dropout: keep it in train mode, as some releases have it.

    Example:
        ```python
        teacher = limbeck.Teacher(model)
        trace = teacher(batch, limbeck.Request.hidden([6], pool="cls"))
        ```

    Raises:
        LimbeckError: anything but a transformers model.
    """

    names: tuple[str, ...] = ("",)
    """Each member's name in logs and records; one teacher is a team of one (`limbeck.teachers`)."""
    live = True
    """Whether its model is run; otherwise it reads stored outputs."""
    remembers = False
    """Whether it caches its model's outputs in memory."""
    separate = False
    """Whether terms are built for each member (`limbeck.teachers`)."""
    outputs: Any = None
    """The outputs given instead of a model (`limbeck.outputs.stored_teacher.GivenOutputs`)."""
    entry: Any = None
    """Where its outputs were stored before training (`limbeck.outputs.cache.StoredEntry`)."""
    fresh = 0
    """On how many rows its model ran to store its outputs for this training."""
    built_seconds = 0.0
    """How long that took."""

    def __init__(self, model: PreTrainedModel, *, dropout: bool = False) -> None:
        if not isinstance(model, PreTrainedModel):
            raise LimbeckError(
                f"teacher: a {type(model).__name__} is not a transformers model",
                "pass the transformers model itself",
            )
        self.dropout = dropout
        self.passes = Passes()
        """The passes it has run since someone began to count."""
        self.own_tokens: OwnTokens | None = None
        self.inputs: ModelInputs | None = None
        """How it finds its inputs in a batch; None: it is given whatever its forward pass names."""
        self._capture: Callable[[Mapping[str, Tensor], Request], Trace] = partial(capture, model)
        self.model = model.train(dropout).requires_grad_(False)
        self._cast_once = CastOnce(model)

    @classmethod
    def load(
        cls,
        path_or_name: str | Path,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        attn_implementation: str | None = None,
    ) -> "Teacher":
        """Read a fine-tuned checkpoint with its own labels.

        Raises LimbeckError as `limbeck.students.load_model`, and for a checkpoint without a trained
        head.
        """
        model = load_model(path_or_name, head="required", attn_implementation=attn_implementation)
        return cls(model).to(device, dtype)

    def reading(self, inputs: ModelInputs | None, own_tokens: OwnTokens | None = None) -> Self:
        """The same teacher for certain rows: it finds its inputs in their batches like this.

        The model is shared, and so is its cache; passes are counted from 0.
        """
        other = copy(self)
        other.inputs, other.own_tokens, other.passes = inputs, own_tokens, Passes()
        return other

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Teacher":
        """Move the model, and change its floating-point type if one is given. Returns itself.

        A model over several devices (`device_map`) is not moved.
        """
        place(self.model, device)
        if dtype is not None:
            self.model.to(dtype=dtype)
        return self

    def compile(self) -> "Teacher":
        """Run its passes as compiled graphs from now on, but for transformed inputs. Returns itself.

        A model over several devices is not compiled.
        """
        if not is_spread(self.model):
            self._capture = CompiledCapture(self.model)
        return self

    def pack(self) -> "Teacher":
        """Run its passes on batches without padding from now on. Returns itself."""
        self._capture = partial(capture, self.model, packed=True)
        return self

    @property
    def members(self) -> "tuple[Teacher, ...]":
        """Itself."""
        return (self,)

    @property
    def shares(self) -> Sequence[float] | np.ndarray:
        """The share of all steps in which each member runs."""
        return (1.0,)

    weights: Sequence[float] = (1.0,)
    """How much each member counts."""

    def weighed(self, given: Sequence[float]) -> Self:
        """Itself: a single teacher has no weights."""
        return self

    def pick(self, seed: int, step: int) -> int:
        """The number of the member whose step it is."""
        return 0

    def on_rows(
        self, index: Sequence[int] | np.ndarray, ids: np.ndarray, silent: np.ndarray | None = None
    ) -> Self:
        """The teacher of certain examples, the rows with these ids: itself, bound to a batch."""
        return self

    def asks(self, request: Request) -> Request:
        """The request to a member for this request to all of them: the same."""
        return request

    def at(self, step_state: StepState) -> "Teacher":
        """The teacher of a step: this one."""
        return self

    def answered_by(self, members: "Sequence[Teacher]") -> "Teacher":
        """The one that takes this one's place, such as one that reads stored outputs."""
        (member,) = members
        return member

    @property
    def config(self) -> PretrainedConfig:
        """The model's configuration, labels included."""
        found: PretrainedConfig = self.model.config
        return found

    @property
    def device(self) -> torch.device:
        """Device of the model, or of its inputs if it is on several devices."""
        return device_of(self.model)

    @property
    def columns(self) -> set[str]:
        """What of an example it may read: the columns of its own, or whatever its forward pass names."""
        if self.inputs is not None:
            return {*self.inputs.own.values()}
        return {*inspect.signature(self.model.forward).parameters}

    def as_read(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The batch's examples with the inputs that this model's own tokenizer makes of them."""
        if self.own_tokens is not None:
            return self.own_tokens(batch)
        return batch if self.inputs is None else self.inputs.of(batch)

    def __call__(self, inputs: StepInputs | Mapping[str, Tensor], request: Request) -> Trace:
        """The requested activations, from a step's inputs or from a plain batch, on the teacher's device.

        States and attention of a teacher with a tokenizer of its own are mapped to the student's tokens.

        Raises LimbeckError as `limbeck.activations.capture` and `OwnTokens.aligned`, and for transformed inputs of
        such a teacher.
        """
        inputs, own = as_inputs(inputs), self.own_tokens
        if own is not None and inputs.transform is not None:
            raise LimbeckError(
                "teacher and student read an example in different tokens: their inputs cannot be transformed alike",
                "leave mixup and input_transform out, or choose models of one vocabulary",
            )
        batch = self.as_read(inputs.batch)
        # Someone may hold the model itself and call train() on it; dropout would then be on.
        if self.model.training != self.dropout:
            self.model.train(self.dropout)
        device = self.device
        if is_spread(self.model):  # its outputs come to the device of its inputs: the student's
            device = next(iter(inputs.batch.values())).device
        moved = {key: send(value, device) for key, value in batch.items()}
        # Not inference_mode: its tensors may not be saved for the student's backward pass.
        with torch.no_grad(), self._cast_once():
            trace = inputs.of_teacher(self.model, moved, request, self._capture, self.passes)
        return trace if own is None else own.aligned(trace, inputs.batch)
