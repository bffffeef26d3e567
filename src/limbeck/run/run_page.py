"""The page of one run: what `limbeck.reporting.pages` needs besides the record. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from datasets import Dataset
from torch import Tensor

from limbeck.activations import stack_names
from limbeck.data import add_inputs
from limbeck.reporting.analysis import layer_similarity
from limbeck.reporting.pages import write_report
from limbeck.reporting.records import Record
from limbeck.run.assemble import Assembly
from limbeck.run.run_folder import RunFolder

# RAIL-KD Figure 2 compares layers on 100 examples; more change nothing that a heat map shows.
_EXAMPLES = 128
_BATCH = 32


def similarity(assembly: Assembly) -> np.ndarray | None:
    """How alike teacher and student layers represent dev examples.

    None without a teacher, or where one of the two has no layers over tokens or they read
    different tokens.
    """
    if assembly.teacher is None or assembly.named[assembly.reference].teacher.own_words:
        return None
    if not (stack_names(assembly.teacher) and stack_names(assembly.student)):
        return None
    encoded, inputs = add_inputs(
        assembly.dev,
        assembly.rows[assembly.task.dev_splits[0]],
        assembly.task,
        assembly.tokenizer,
        assembly.named[assembly.reference].tokenizer,
        assembly.max_length,
    )
    if inputs is None:
        return None
    assembly.student.eval()
    return layer_similarity(
        assembly.teacher,
        assembly.student,
        _batches(encoded, assembly),
        as_teacher_reads=inputs.of,
    )


def _batches(encoded: Dataset, assembly: Assembly) -> Iterator[dict[str, Tensor]]:
    collate = assembly.collator
    count = min(_EXAMPLES, len(encoded))
    for start in range(0, count, _BATCH):
        rows = encoded.select(range(start, min(start + _BATCH, count)))
        batch = collate(list(rows))
        yield {name: value.to(assembly.student.device) for name, value in batch.items()}


def report_run(assembly: Assembly, record: Record, folder: RunFolder) -> None:
    """Write `report.html`, with the similarity of teacher and student layers where there is a teacher."""
    matrix = similarity(assembly)
    write_report(
        [record],
        folder.report,
        title=f"{record.method} on {assembly.task.title}",
        similarity=None if matrix is None else {record.method: matrix},
    )
