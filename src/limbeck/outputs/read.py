"""A teacher whose outputs lie on disk. Part of `limbeck.outputs`."""

from __future__ import annotations

import hashlib
import inspect
import mmap
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from limbeck.activations import (
    ActivationKey,
    Request,
    Trace,
    number_of_layers,
    stack_names,
    token_mask,
)
from limbeck.functional.labels import NO_LABEL
from limbeck.functional.partial_logits import PartialLogits
from limbeck.input_transforms.input_transform import StepInputs, as_inputs
from limbeck.outputs.cache import StoredEntry
from limbeck.outputs.columns import (
    IDS,
    INDEX,
    LOGITS,
    REST,
    VALUES,
    Masks,
    OutputColumn,
    places,
    token_masks,
    whole,
)
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import on_host, send
from limbeck.tasks import task_type_of
from limbeck.teachers.teacher import Teacher


class CachedTeacher(Teacher):
    """Outputs by a batch's `index` column from an entry of the store; the model is never run.

    Args:
        teacher: the live teacher whose outputs they are.
        entry: where they lie.
        fresh: how many rows the model ran on to build the entry for this run; 0 if it was
            there.

    Raises:
        LimbeckError: asked for what it does not hold.
    """

    def __init__(self, teacher: Teacher, entry: StoredEntry, *, fresh: int = 0) -> None:
        super().__init__(teacher.model)
        self.inputs = teacher.inputs
        self.entry = entry
        self.fresh = fresh
        self.stored = MappedOutputs(entry)

    @property
    def built_seconds(self) -> float:
        """What building the entry cost this run."""
        return self.entry.outputs.costs["seconds"] if self.fresh else 0.0

    def __call__(self, inputs: StepInputs | Mapping[str, Tensor], request: Request) -> Trace:
        """What `request` asks for, of the batch's examples, in float32.

        Raises:
            LimbeckError: an example, or a thing to look at, that is not stored; inputs that are
                another thing in every step.
        """
        inputs = as_inputs(inputs)
        if not inputs.as_stored:
            assert inputs.transform is not None
            raise LimbeckError(
                f"cache: outputs of transformed inputs are not stored ({inputs.transform.name}: "
                f"{inputs.transform.why_live})",
                "run with cache=never",
            )
        batch = inputs.batch
        host = on_host(batch)
        trace = self.stored.trace(request, host[INDEX], partial(token_masks, self.model, host))
        device = batch[INDEX].device
        # Sent as narrow as they are stored.
        return Trace(
            values={seen: send(value, device).float() for seen, value in trace.values.items()},
            logits=None if trace.logits is None else send(trace.logits, device).float(),
            masks=token_masks(self.model, batch),
            partial=None if trace.partial is None else trace.partial.on(device),
        )


# A teacher that runs once for each example: its outputs are remembered and served again. It takes
# the live teacher's place. In memory only, for runs that share a process: several epochs, seeds
# and methods over the same rows cost one teacher pass.


class RememberingTeacher(Teacher):
    """A `Teacher` with a memory, keyed by what it reads of an example, so that any rows may follow any others.

    Inputs that a transform changes in every step are asked live. Values are those of the batch in
    which an example was first seen; padding changes them by rounding only.

    Args:
        teacher: the live teacher.
        pools: poolings to remember for every layer, so that a random mapping finds each of its
            candidates.
    """

    def __init__(self, teacher: Teacher, pools: tuple[str, ...] = ("cls", "mean")) -> None:
        super().__init__(teacher.model)
        self.own_tokens, self.inputs = teacher.own_tokens, teacher.inputs
        depth = number_of_layers(teacher.model) if stack_names(teacher.model) else 0
        layers = range(1, depth + 1)
        self.whole = Request.of_logits()
        for pool in pools:
            self.whole = self.whole | Request.hidden(layers, pool=pool)  # type: ignore[arg-type]  # pools come from keys, which are of the type
        # A decoder reads what the labels say; others answer alike whatever is right.
        decodes = bool(getattr(teacher.model.config, "is_encoder_decoder", False))
        reads = {*inspect.signature(teacher.model.forward).parameters}
        self._told_by = reads if decodes else reads - {"labels"}
        self._slots: dict[bytes, int] = {}
        self._values: dict[ActivationKey, list[Tensor]] = {}
        self._logits: list[Tensor] = []

    def __call__(self, inputs: StepInputs | Mapping[str, Tensor], request: Request) -> Trace:
        """As the live teacher; runs it only for batches with an example not seen before."""
        asked = request.items <= self.whole.items and task_type_of(self.model).constant
        inputs = as_inputs(inputs)
        if not inputs.as_stored or not asked:
            return super().__call__(inputs, request)
        batch = inputs.batch
        read = self.as_read(on_host(batch))
        rows = _examples({name: read[name] for name in self._told_by & read.keys()})
        if any(row not in self._slots for row in rows):
            self._learn(rows, super().__call__(batch, self.whole))
        slots = [self._slots[row] for row in rows]
        return Trace(
            values={
                seen: torch.stack([self._values[seen][slot] for slot in slots])
                for seen in request.items
            },
            logits=torch.stack([self._logits[slot] for slot in slots]) if request.logits else None,
            masks={"main": token_mask(self.model, batch)},
        )

    def _learn(self, rows: list[bytes], trace: Trace) -> None:
        assert trace.logits is not None
        for position, row in enumerate(rows):
            if row in self._slots:
                continue
            self._slots[row] = len(self._logits)
            self._logits.append(trace.logits[position].float().clone())
            for seen in self.whole.items:
                self._values.setdefault(seen, []).append(trace[seen][position].float().clone())


def _examples(batch: Mapping[str, Tensor]) -> list[bytes]:
    """A digest of each example, whatever it is padded to."""
    columns = {name: batch[name].cpu().numpy() for name in sorted(batch)}
    digests = [hashlib.blake2b(digest_size=16) for _ in next(iter(columns.values()))]
    mask = columns.get("attention_mask")
    for name, column in columns.items():
        if mask is not None and column.shape == mask.shape:
            real = mask.astype(bool)
        elif name == "labels" and column.ndim > 1:
            real = column != NO_LABEL
        else:
            real = None
        for place, digest in enumerate(digests):
            values = column[place] if real is None else column[place][real[place]]
            digest.update(f"{name} {values.shape} ".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return [digest.digest() for digest in digests]


# Stored outputs read at random, a batch's examples at a time. The table is mapped into memory and
# read through views: its pages belong to the operating system, are shared by all processes, and
# are not copied but for the rows of a batch. After each batch the process lets go of those it has
# touched, so that they are not counted as its own either.


class MappedOutputs:
    """An entry of the store, by the numbers of its examples; knows of no model.

    Args:
        entry: where it lies.
    """

    def __init__(self, entry: StoredEntry) -> None:
        self.entry = entry
        layout = entry.outputs.layout
        self._map = _mapped(entry.table)
        table = pa.ipc.open_stream(pa.py_buffer(self._map)).read_all()
        # The logits are under None; what else has no place in a model is asked for by its name.
        self.by_seen = {
            column.seen: column
            for column in layout.columns
            if column.seen is not None or column.name == LOGITS
        }
        self.by_name = {column.name: column for column in layout.columns}
        self.pieces = {
            column.name: [_StoredPiece(column, part) for part in table.column(column.name).chunks]
            for column in layout.columns
        }
        index = table.column(INDEX)
        sizes = [len(part) for part in index.chunks]
        rows = index.to_numpy()
        # Where each example lies: (piece, row in it); −1 where it does not.
        self._place = np.full((int(rows.max()) + 1, 2), -1, dtype=np.int32)
        self._place[rows, 0] = np.repeat(np.arange(len(sizes)), sizes)
        self._place[rows, 1] = np.concatenate([np.arange(size) for size in sizes])

    def trace(self, request: Request, index: Tensor, masks: Callable[[], Masks]) -> Trace:
        """What `request` asks for, of some examples, as it is stored: float16 or float32, on CPU.

        Args:
            index: the examples' numbers, (B,).
            masks: which tokens of the batch are real, by stack; called where a row has as many values as tokens.

        Raises:
            LimbeckError: an example, or a thing to look at, that is not stored, or other lengths than were stored.
        """
        columns = [self._column_of(seen) for seen in request.items]
        tokens = self.entry.outputs.tokens
        if request.logits and tokens is None:
            columns.append(self._column_of(None))
        elif request.logits and tokens is not None:
            columns += [self.by_name[name] for name in (IDS, VALUES, REST)]
        found = self._read(columns, self._places_of(index), masks)
        trace = Trace(
            values={seen: found[self.by_seen[seen].name] for seen in request.items},
            logits=found.get(LOGITS) if request.logits else None,
        )
        if request.logits and tokens is not None:
            parts = (found[name] for name in (IDS, VALUES, REST))
            trace.partial = PartialLogits(tokens.rule, tokens.vocabulary, *parts)
        return trace

    def _release_pages(self) -> None:
        # A row of some kilobytes maps a hundred around it. They stay in the system's cache, from
        # where touching them again is cheap.
        if hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def _column_of(self, seen: ActivationKey | None) -> OutputColumn:
        try:
            return self.by_seen[seen]
        except KeyError:
            raise LimbeckError(
                f"cache: {seen or LOGITS} is not stored", "run with cache=never, and report this"
            ) from None

    def _places_of(self, index: Tensor) -> list[tuple[int, int]]:
        rows = index.cpu().numpy()
        known = (rows >= 0) & (rows < len(self._place))
        found = self._place[np.where(known, rows, 0)]
        missing = ~known | (found[:, 0] < 0)
        if missing.any():
            raise LimbeckError(
                f"cache: no outputs for example {rows[missing][0]} are stored",
                "run with cache=never, or remove the entry: limbeck outputs clear",
            )
        return [(piece, row) for piece, row in found.tolist()]

    def _read(
        self,
        wanted: list[OutputColumn],
        where: list[tuple[int, int]],
        masks: Callable[[], Masks],
    ) -> dict[str, Tensor]:
        of_batch: Masks = {} if all(column.fixed for column in wanted) else masks()
        owns = places(of_batch) if of_batch else []
        found = {}
        for column in wanted:
            pieces = self.pieces[column.name]
            stored = [pieces[piece].value(row) for piece, row in where]
            if column.fixed:
                joined = torch.from_numpy(np.stack(stored))
                found[column.name] = joined.view(len(stored), *column.sizes())
                continue
            # Widened later, all rows together: numpy widens float16 number by number.
            into = np.zeros((len(stored), *column.sizes(whole(of_batch))), dtype=column.dtype)
            # Many examples of a batch have one length.
            room = {own: (column.sizes(own), column.among_padding(own)) for own in set(owns)}
            for row, (flat, own) in enumerate(zip(stored, owns, strict=True)):
                shape, place = room[own]
                if flat.size != prod(shape):
                    raise LimbeckError(
                        "cache: an example has another length than when its outputs were stored",
                        "remove the entry: limbeck outputs clear",
                    )
                into[row][place] = flat.reshape(shape)
            found[column.name] = torch.from_numpy(into)
        self._release_pages()
        return found


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class _StoredPiece:
    """One column of one piece of the table, as views into the mapped file."""

    def __init__(self, column: OutputColumn, part: pa.Array) -> None:
        if column.fixed:
            size = part.type.list_size
            self._flat = part.flatten().to_numpy(zero_copy_only=True)
            self._ends: np.ndarray | None = None
            self._size = size
        else:
            self._flat = part.values.to_numpy(zero_copy_only=True)
            self._ends = part.offsets.to_numpy(zero_copy_only=True)
            self._size = 0

    def value(self, row: int) -> np.ndarray:
        """One example's values, flat: a view."""
        if self._ends is None:
            return self._flat[row * self._size : (row + 1) * self._size]
        return self._flat[self._ends[row] : self._ends[row + 1]]
