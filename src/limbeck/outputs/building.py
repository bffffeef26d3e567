"""One pass of the teacher over all rows, written as it goes. Part of `limbeck.outputs`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from datasets import Features
from datasets.arrow_writer import ArrowWriter
from torch import Tensor

from limbeck.activations import Passes, Request, Trace
from limbeck.objectives import ModelShape
from limbeck.outputs.cache import SHARD, describe
from limbeck.outputs.columns import (
    INDEX,
    LARGEST_FLOAT16,
    LOGITS,
    Alike,
    Ask,
    Lengths,
    Masks,
    OutputColumn,
    OutputLayout,
    runs_alike,
    storage_type,
    token_masks,
)
from limbeck.outputs.key import LIBRARIES, digest_of_ids, digest_of_model, library_versions
from limbeck.outputs.manifest import (
    EntryAbout,
    EntryRows,
    RowsIdentity,
    StoreManifest,
    TeacherIdentity,
    TokensIdentity,
)
from limbeck.students import generic_labels, labels_of
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import on_host
from limbeck.tasks import task_type_of
from limbeck.teachers.teacher import Teacher

# The table a build writes: rows gathered into pieces, each written beside the passes that follow.
# Writing waits for memory and disk, so it has a thread of its own; one piece waits at most, and no
# more than two are in memory.


# Of one piece of the table, about: a reader holds few of them, and what is written is still in the processor's cache.
_PIECE_BYTES = 8 * 2**20
# Examples of the first batch whose rounding is measured.
_LOOKED_AT = 4


class UnstorableError(LimbeckError):
    """The teacher says something that float16 cannot hold, or there is no room for what it says."""


class TableWriter:
    """A table on its way to disk; `finish` makes it whole, `close` lets go of it as it is.

    Attributes:
        largest_rounding: what float16 lost of the first examples, relatively.
        rows: that it was given.

    Args:
        path: of the Arrow file.
        layout: its columns of outputs.
        ids: of the row with each `index`, for the column `row`.
    """

    def __init__(self, path: Path, layout: OutputLayout, ids: np.ndarray | None = None) -> None:
        self.layout = layout
        self.largest_rounding = 0.0
        self.rows = 0
        features = layout.features if ids is None else layout.features_with_ids
        self._writer = ArrowWriter(features=features, path=str(path))
        self._beside = ThreadPoolExecutor(max_workers=1)
        self._written: Future[None] | None = None
        self._filling, self._waiting = (_PieceBeingWritten(layout, features, ids) for _ in "12")
        self._begun = False

    def add(self, batch: Mapping[str, Tensor], trace: Trace) -> None:
        """Take in one batch without its padding.

        Raises:
            UnstorableError: a value that float16 cannot hold.
        """
        alike = runs_alike(trace.masks)
        self.rows += len(batch[INDEX])
        if not self._filling.has_room(alike):
            self._write()
        self._filling.begin(batch[INDEX].cpu().numpy(), alike)
        for column in self.layout.columns:
            value = _at_hand(column.of(trace).detach(), column)
            if not _all_finite(self._filling.fill(column, value, alike)):
                raise UnstorableError(
                    f"cache: the teacher's {column.seen or LOGITS} is not finite, or beyond "
                    f"float16, which ends at {LARGEST_FLOAT16:.0f}",
                    "run with cache=never",
                )
            if not self._begun and column.dtype == "float16":
                few = {name: mask[:_LOOKED_AT] for name, mask in trace.masks.items()}
                lost = _rounding(column.of(trace)[:_LOOKED_AT], few, column)
                self.largest_rounding = max(self.largest_rounding, lost)
        self._begun = True

    def finish(self) -> None:
        """Write what waits; the table is whole afterwards.

        Raises:
            OSError: the disk is full, say.
        """
        self._write()
        self._wait()
        self._writer.finalize()

    def close(self) -> None:
        """Let go of the file, whole or not."""
        self._beside.shutdown()
        self._writer.close()

    def _write(self) -> None:
        self._wait()
        if self._filling.rows:
            self._written = self._beside.submit(self._writer.write_table, self._filling.table())
        self._filling, self._waiting = self._waiting, self._filling
        self._filling.clear()

    def _wait(self) -> None:
        if self._written is not None:
            self._written.result()


class _PieceBeingWritten:
    """Rows that wait to be written, in buffers that are filled again and again."""

    def __init__(self, layout: OutputLayout, features: Features, ids: np.ndarray | None) -> None:
        self.layout = layout
        self._schema = features.arrow_schema
        self._ids = ids
        self._buffers: dict[str, Tensor] = {}
        self.clear()

    def clear(self) -> None:
        """Forget the rows; the buffers stay."""
        self.rows = 0
        self._index: list[np.ndarray] = []
        self._alike: list[Alike] = []
        self._filled = dict.fromkeys((column.name for column in self.layout.columns), 0)

    def has_room(self, alike: list[Alike]) -> bool:
        """Whether a batch fits beside what is there."""
        return all(
            name in self._buffers and self._filled[name] + count <= len(self._buffers[name])
            for name, count in self._counts(alike).items()
        )

    def begin(self, index: np.ndarray, alike: list[Alike]) -> None:
        """The examples whose values follow; an empty piece makes what room they need."""
        if not self.rows:
            self._make_room(self._counts(alike))
        self.rows += len(index)
        self._index.append(index)
        self._alike += alike

    def fill(self, column: OutputColumn, value: Tensor, alike: list[Alike]) -> Tensor:
        """Cast and copy a batch's values (B, …) to their place, without padding; returned as stored."""
        buffer, start = self._buffers[column.name], self._filled[column.name]
        end = start
        for part in [value] if column.fixed else _without_padding(value, column, alike):
            buffer[end : end + part.numel()].view(part.shape).copy_(part)
            end += part.numel()
        self._filled[column.name] = end
        return buffer[start:end]

    def table(self) -> pa.TableWriter:
        """All of it, as views of the buffers."""
        index = np.concatenate(self._index)
        arrays: list[pa.Array] = [pa.array(index)]
        if self._ids is not None:
            arrays.append(pa.array(self._ids[index]))
        rows = [_count(rows) for rows, _ in self._alike]
        for column in self.layout.columns:
            values = pa.array(self._buffers[column.name][: self._filled[column.name]].numpy())
            if column.fixed:
                arrays.append(pa.FixedSizeListArray.from_arrays(values, prod(column.sizes())))
            else:
                sizes = [prod(column.sizes(own)) for _, own in self._alike]
                offsets = np.concatenate([[0], np.repeat(sizes, rows).cumsum()])
                arrays.append(pa.LargeListArray.from_arrays(pa.array(offsets), values))
        return pa.table(arrays, schema=self._schema)

    def _counts(self, alike: list[Alike]) -> dict[str, int]:
        """Values of a batch in each column."""
        return {
            column.name: sum(prod(column.sizes(own)) * _count(rows) for rows, own in alike)
            for column in self.layout.columns
        }

    def _make_room(self, counts: dict[str, int]) -> None:
        """For this batch, and for as many more like it as a piece may hold."""
        types = {column.name: storage_type(column) for column in self.layout.columns}
        bytes_of_batch = sum(count * types[name].itemsize for name, count in counts.items())
        batches = max(_PIECE_BYTES // bytes_of_batch, 1)
        for name, count in counts.items():
            if name not in self._buffers or len(self._buffers[name]) < count:
                self._buffers[name] = torch.empty(count * batches, dtype=types[name])


def _count(rows: slice) -> int:
    return int(rows.stop - rows.start)


def _at_hand(value: Tensor, column: OutputColumn) -> Tensor:
    """On the processor, in a type that can be cast fast; what comes from afar is cast before it travels."""
    if value.device.type != "cpu":
        return value.to("cpu", storage_type(column))
    # Two conversions that exist as vector instructions beat one that does not.
    return value.float() if value.dtype == torch.bfloat16 else value


def _without_padding(value: Tensor, column: OutputColumn, alike: list[Alike]) -> Iterator[Tensor]:
    for rows, own in alike:
        yield value[(rows, *column.among_padding(own))]


def _all_finite(value: Tensor) -> bool:
    """As `torch.isfinite(value).all()` in one pass and without a copy: the extremes tell of NaN and infinity."""
    return not value.numel() or all(isfinite(extreme) for extreme in torch.aminmax(value))


def _rounding(value: Tensor, masks: Masks, column: OutputColumn) -> float:
    """What float16 loses of real tokens, relatively."""
    value = value.float()
    difference = value - value.to(storage_type(column))
    if not column.fixed:
        difference, value = (_real_only(x, masks, column) for x in (difference, value))
    return float(difference.norm() / value.norm().clamp(min=1e-30))


def _real_only(value: Tensor, masks: Masks, column: OutputColumn) -> Tensor:
    """Zero at padding, whatever stands there."""
    for dimension, size in enumerate(column.shape, start=1):
        if isinstance(size, str):
            mask = masks[size]
            shape = [len(mask)] + [1] * (value.dim() - 1)
            shape[dimension] = mask.shape[1]
            value = value.masked_fill(~mask.view(shape), 0.0)
    return value


Batches = Iterable[Mapping[str, Tensor]]
_UNNAMED = EntryAbout()


def build(
    folder: Path,
    teacher: Teacher,
    batches: Batches,
    wanted: Ask,
    *,
    precision: str,
    about: EntryAbout = _UNNAMED,
    advance: Callable[[int], None] = lambda examples: None,
) -> None:
    """Write the teacher's outputs about every example of `batches` into `folder`.

    Args:
        batches: with `index`; sorted by length they hold least padding.
        precision: fp32 or bf16: the autocast type the run's own passes would have.
        about: what else the entry says of itself.
        advance: called with the number of examples done since the last call.

    Raises:
        UnstorableError: a value that float16 cannot hold.
    """
    began = time.perf_counter()
    teacher.passes = Passes()
    table: TableWriter | None = None
    vocabulary: int | None = None
    rows = None if about.rows is None else about.rows()
    try:
        for batch in batches:
            trace = ask(teacher, batch, wanted.request, precision)
            if table is None:
                vocabulary = None if trace.partial is None else trace.partial.vocabulary
                layout = OutputLayout.of(trace, wanted)
                ids = None if rows is None else rows.ids
                table = TableWriter(folder / SHARD, layout, ids)
            table.add(batch, trace)
            advance(len(batch[INDEX]))
        if table is None:
            raise LimbeckError("there are no rows to ask the teacher about", "check the data")
        table.finish()
    finally:
        if table is not None:
            table.close()
    took = time.perf_counter() - began
    manifest = _manifest(teacher, table, wanted, precision, about, rows, took)
    if vocabulary is not None:
        tokens = TokensIdentity(kept=str(wanted.request.tokens), vocabulary=vocabulary)
        manifest = manifest.model_copy(update={"tokens": tokens})
    describe(folder, manifest, table.rows)


def _manifest(
    teacher: Teacher,
    table: TableWriter,
    wanted: Ask,
    precision: str,
    about: EntryAbout,
    rows: EntryRows | None,
    seconds: float,
) -> StoreManifest:
    config, kind = teacher.config, task_type_of(teacher.model)
    named = kind.labels_examples and (config.num_labels or 0) > 1
    own = str(getattr(config, "name_or_path", "") or type(teacher.model).__name__)
    manifest = StoreManifest(
        complete=False,
        kind=kind.name,
        task=about.task,
        classes=labels_of(config) if named else (),
        teacher=TeacherIdentity(name=about.teacher or own, fingerprint={}),
        rows=RowsIdentity(count=table.rows, fingerprint=""),
        settings={
            "precision": precision,
            "holds": wanted.names(),
            "largest_rounding": table.largest_rounding,
        },
        columns=tuple(table.layout.written()),
        keyed=INDEX,
        costs={"seconds": seconds},
        passes=tuple(teacher.passes.state()),
        made_with=dict(zip(LIBRARIES, library_versions(), strict=True)),
    )
    return manifest if rows is None else _identified(manifest, teacher, rows)


def _identified(manifest: StoreManifest, teacher: Teacher, rows: EntryRows) -> StoreManifest:
    """With the identities that a store has which was labelled."""
    model, precision = digest_of_model(teacher.model), manifest.settings["precision"]
    unnamed = generic_labels(manifest.classes) and len(rows.classes) == len(manifest.classes)
    return manifest.model_copy(
        update={
            "row_ids": True,
            "classes": rows.classes if unnamed else manifest.classes,
            "teacher": TeacherIdentity(
                name=manifest.teacher.name,
                fingerprint={"model": model, **rows.read_by, "precision": precision},
                shape=ModelShape.of(teacher.model).written(),
            ),
            "rows": RowsIdentity(
                count=manifest.rows.count,
                fingerprint=digest_of_ids(rows.ids),
                source=rows.source,
                columns=rows.columns,
                target=rows.target,
            ),
        }
    )


def ask(teacher: Teacher, batch: Mapping[str, Tensor], request: Request, precision: str) -> Trace:
    """The live teacher's outputs as a run of this precision would get them."""
    device = teacher.device.type
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        trace = teacher(batch, request)
    if request.tokens is not None and trace.logits is not None:
        numbers = on_host(batch)[INDEX].tolist()
        trace.partial, trace.logits = request.tokens.of(trace.logits, numbers), None
    if "main" not in trace.masks:  # of images whose layers nobody looks at
        trace.masks |= token_masks(teacher.model, batch)
    return trace


# What storing a teacher's outputs takes and saves, told before anything is stored.


# Bytes a second: mapped pages copied and widened. Slower disks are hidden by the page cache.
_READ_RATE = 5e8


@dataclass(frozen=True)
class Estimate:
    """Attributes: room on disk, and seconds: of one teacher pass, and of reading it back."""

    bytes: int
    teacher_seconds: float
    read_seconds: float

    def saved(self, passes: float) -> float:
        """Seconds that `passes` over the rows save, the pass that stores them counted."""
        return passes * (self.teacher_seconds - self.read_seconds) - self.teacher_seconds


def measure(
    teacher: Teacher,
    batch: Mapping[str, Tensor],
    wanted: Ask,
    lengths: Lengths,
    *,
    precision: str,
) -> Estimate:
    """From one batch of examples, and the lengths of all."""
    trace = ask(teacher, batch, wanted.request, precision)
    began = time.perf_counter()
    ask(teacher, batch, wanted.request, precision)
    seconds = time.perf_counter() - began
    per_token = seconds / int(trace.mask().sum())
    size = OutputLayout.of(trace, wanted).bytes(lengths)
    return Estimate(size, per_token * float(lengths["main"].sum()), size / _READ_RATE)
