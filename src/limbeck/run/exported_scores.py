"""The scores of an exported model, computed by its own runtime. Part of `limbeck.run`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from limbeck.run.exported_outputs import compact_outputs_of_export
from limbeck.run.gate_rows import gate_rows
from limbeck.run.scored_split import Scored
from limbeck.runtimes import RUNTIMES, OnnxPredictor, exports_of, is_export
from limbeck.support.errors import LimbeckError, unknown
from limbeck.support.files import at_home


def find_export(path: str) -> Path:
    """An exported folder, or the one that a run holds.

    Raises:
        LimbeckError: there is none, or there are several to choose from.
    """
    folder = at_home(path)
    if is_export(folder):
        return folder
    found = exports_of(folder)
    if len(found) == 1:
        return found[0]
    if found:
        raise LimbeckError(
            f"{path} holds {len(found)} exported models",
            f"name one: {', '.join(map(str, found))}",
        )
    raise LimbeckError(
        f"{path} holds no exported model", f"limbeck export {path} --format onnx makes one"
    )


def score_export(
    path: str,
    backend: str | None = None,
    task: str | None = None,
    data: str | None = None,
    split: str | None = None,
    *,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    threads: int | None = None,
) -> Scored:
    """An exported model's predictions on the rows it was measured on, or on others.

    Args:
        path: an exported folder, or a run that holds one.
        backend: `onnxruntime`, `openvino` or `executorch`; by default what the folder is for.
        threads: of the runtime.

    Raises:
        LimbeckError: no exported model there, a damaged one, an unknown backend, rows or classes
            that do not fit the model.
    """
    if backend is not None and backend not in RUNTIMES:
        choices = ["torch", *RUNTIMES]
        if backend != "torch":
            raise LimbeckError(unknown("backend", backend, choices))
        raise LimbeckError(
            f"backend torch: {path} holds an exported model, not torch's",
            f"leave it out, or choose {' or '.join(RUNTIMES)}",
        )
    folder = find_export(path)
    predictor = OnnxPredictor.load(folder, runtime=backend, threads=threads)
    rows = gate_rows(
        str(folder), task, data, split=split, text_columns=text_columns, label_column=label_column
    )
    wanted = list(rows.task.kind.head_labels(rows.task) or ())
    if predictor.labels and len(wanted) != len(predictor.labels):
        raise LimbeckError(
            f"{path} predicts {', '.join(predictor.labels)}, but {rows.task.name} has the classes "
            f"{', '.join(wanted)}",
            "name the task that it was exported for",
        )
    outputs = []
    for batch in rows.batches(predictor.manifest.gate.batch_size):
        logits = predictor.logits_of(batch)
        outputs.append(compact_outputs_of_export(rows.task, predictor.session, batch, logits))
    return Scored(rows.task, rows.split, rows.rows, rows.results(outputs))
