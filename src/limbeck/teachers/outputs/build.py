"""One pass of the teacher over all rows, written as it goes. Part of `limbeck.teachers.outputs`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from limbeck.activations import Passes, Request, Trace
from limbeck.errors import LimbeckError
from limbeck.teachers.outputs.columns import INDEX, Ask, OutputLayout
from limbeck.teachers.outputs.places import token_masks
from limbeck.teachers.outputs.store import TABLE, describe
from limbeck.teachers.outputs.table_writer import TableWriter
from limbeck.teachers.teacher import Teacher

Batches = Iterable[Mapping[str, Tensor]]


def build(
    folder: Path,
    teacher: Teacher,
    batches: Batches,
    wanted: Ask,
    *,
    precision: str,
    about: dict[str, Any],
    advance: Callable[[int], None] = lambda examples: None,
) -> None:
    """Write the teacher's outputs about every example of `batches` into `folder`.

    Args:
        batches: with `index`; sorted by length they hold least padding.
        precision: fp32 or bf16: the autocast type the run's own passes would have.
        about: what the entry says of itself beside its size and the largest rounding error.
        advance: called with the number of examples done since the last call.

    Raises:
        UnstorableError: a value that float16 cannot hold.
    """
    began = time.perf_counter()
    teacher.passes = Passes()
    table: TableWriter | None = None
    try:
        for batch in batches:
            trace = ask(teacher, batch, wanted.request, precision)
            if table is None:
                table = TableWriter(folder / TABLE, OutputLayout.of(trace, wanted))
            table.add(batch, trace)
            advance(len(batch[INDEX]))
        if table is None:
            raise LimbeckError("there are no rows to ask the teacher about", "check the data")
        table.finish()
    finally:
        if table is not None:
            table.close()
    own = {
        "seconds": time.perf_counter() - began,
        "passes": teacher.passes.state(),
        "largest_rounding": table.largest_rounding,
        "columns": table.layout.written(),
    }
    describe(folder, about | own)


def ask(teacher: Teacher, batch: Mapping[str, Tensor], request: Request, precision: str) -> Trace:
    """The live teacher's outputs as a run of this precision would get them."""
    device = teacher.device.type
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        trace = teacher(batch, request)
    if "main" not in trace.masks:  # of images whose layers nobody looks at
        trace.masks |= token_masks(teacher.model, batch)
    return trace
