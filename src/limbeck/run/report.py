"""The page and the card of one run: written when it ends, and again when something more is measured of it.

Part of `limbeck.run`.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from limbeck.activations import stack_names
from limbeck.cards import CARD_NAME, is_ours, write_card
from limbeck.data import add_inputs, batches_of
from limbeck.evaluation.similarity_matrix import similarity_of_layers
from limbeck.records import Record
from limbeck.report import write_report
from limbeck.report.sections import page_parts
from limbeck.run.prepared import Prepared
from limbeck.run.run_folder import RunFolder
from limbeck.runtimes.manifest import exports_of_student
from limbeck.support.errors import LimbeckError
from limbeck.tables.model import task_title

log = logging.getLogger(__name__)

# RAIL-KD Figure 2 compares layers on 100 examples; more change nothing that a heat map shows.
_EXAMPLES = 128
_BATCH = 32


def similarity(prepared: Prepared) -> list[list[float | None]] | None:
    """How alike teacher and student layers represent dev examples.

    None without a teacher, or where one of the two has no layers over tokens or they read
    different tokens.
    """
    if prepared.teacher is None or prepared.named[prepared.reference].teacher.own_tokens:
        return None
    if not (stack_names(prepared.teacher) and stack_names(prepared.student)):
        return None
    encoded, inputs = add_inputs(
        prepared.selecting,
        prepared.splits[prepared.task.dev_splits[0]],
        prepared.task,
        prepared.tokenizer,
        prepared.named[prepared.reference].tokenizer,
        prepared.recipe.max_length,
    )
    if inputs is None:
        return None
    prepared.student.eval()
    few = range(min(_EXAMPLES, len(encoded)))
    device = prepared.student.device
    batches = [*batches_of(encoded, prepared.collator, _BATCH, device, order=few)]
    found = similarity_of_layers(
        prepared.teacher, prepared.student, batches, map(inputs.of, batches)
    )
    return [list(row) for row in found.cka]


def report_run(prepared: Prepared, record: Record, folder: RunFolder) -> None:
    """Write `report.html`, with the similarity of teacher and student layers where there is a teacher."""
    matrix = similarity(prepared)
    if matrix is not None:
        record.layer_similarity = matrix
        record.save(folder.path)
    _write_page(record, folder)


def card_run(folder: RunFolder) -> None:
    """Write the model card of a finished run; what stands in the way is said, and no run fails for it."""
    if not is_ours(folder.student / CARD_NAME):
        log.warning("%s is not limbeck's and stays as it is", folder.student / CARD_NAME)
        return
    try:
        write_card(folder.path)
    except LimbeckError as error:
        log.warning("no model card is written: %s", error)


def refresh(run: Path) -> None:
    """A run's page and card again, as something more is known of it; no page where none was written.

    Times of exported models that are gone, or were replaced since, leave the record first.
    """
    folder = RunFolder(run)
    record = Record.load(run)
    _forget_replaced(record, run)
    if folder.report.is_file():
        _write_page(record, folder)
    card_run(folder)


def _forget_replaced(record: Record, run: Path) -> None:
    exports, _ = exports_of_student(run)
    known = {None, *(one.checksums.get(one.file) for one in exports)}
    if record.bench is None or all(row.export in known for row in record.bench.rows):
        return
    record.bench.rows = [row for row in record.bench.rows if row.export in known]
    record.save(run)


def _write_page(record: Record, folder: RunFolder) -> None:
    known = record.layer_similarity
    matrix = None if known is None else np.array(known, dtype=np.float64)
    write_report(
        [record],
        folder.report,
        title=f"{record.method} on {task_title(record.task)}",
        similarity=None if matrix is None else {record.method: matrix},
        exports=exports_of_student(folder.path)[0],
        more=[one for part in page_parts() for one in part.sections(folder.path)],
    )
