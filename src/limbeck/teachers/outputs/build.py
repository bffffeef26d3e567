"""One pass of the teacher over all rows, written as it goes. Part of `limbeck.teachers.outputs`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from limbeck.activations import Passes, Request, Trace
from limbeck.objectives import ModelShape
from limbeck.students import generic_labels, labels_of
from limbeck.support.errors import LimbeckError
from limbeck.support.machine import on_host
from limbeck.tasks import task_type_of
from limbeck.teachers.outputs.columns import INDEX, Ask, OutputLayout
from limbeck.teachers.outputs.entry_about import EntryAbout, EntryRows
from limbeck.teachers.outputs.entry_key import (
    LIBRARIES,
    digest_of_ids,
    digest_of_model,
    library_versions,
)
from limbeck.teachers.outputs.places import token_masks
from limbeck.teachers.outputs.store import SHARD, describe
from limbeck.teachers.outputs.store_manifest import (
    RowsIdentity,
    StoreManifest,
    TeacherIdentity,
    TokensIdentity,
)
from limbeck.teachers.outputs.table_writer import TableWriter
from limbeck.teachers.teacher import Teacher

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
