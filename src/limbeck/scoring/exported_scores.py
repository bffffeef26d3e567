"""The scores of an exported model, computed by its own runtime. Part of `limbeck.scoring`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from limbeck.data import NOTHING_NAMED, RowsAsked
from limbeck.runtimes import (
    RUNTIMES,
    GraphSession,
    OnnxPredictor,
    TextToTextSession,
    exports_of,
    is_export,
)
from limbeck.scoring.gate_rows import gate_rows
from limbeck.scoring.scored_model import Scored
from limbeck.support.errors import LimbeckError, unknown
from limbeck.support.files import at_home
from limbeck.tasks import Task, as_array


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
    asked: RowsAsked = NOTHING_NAMED,
    backend: str | None = None,
    threads: int | None = None,
) -> Scored:
    """An exported model's predictions on the rows it was measured on, or on others.

    Args:
        path: an exported folder, or a run that holds one.
        asked: the rows.
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
    rows = gate_rows(str(folder), asked)
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


# What a task type keeps of an exported model's outputs.


class _Writer:
    """An exported text-to-text model as what generates in a model's place."""

    def __init__(self, session: TextToTextSession) -> None:
        self.session = session

    def generate(
        self,
        *,
        input_ids: Tensor,
        attention_mask: Tensor,
        max_new_tokens: int,
        do_sample: bool,
        num_beams: int,
    ) -> Tensor:
        """Greedily generated token ids (B, T)."""
        assert not do_sample
        assert num_beams == 1
        batch = {"input_ids": input_ids, "attention_mask": attention_mask}
        return torch.from_numpy(self.session.generated(batch, max_new_tokens))


def compact_outputs_of_export(
    task: Task, session: GraphSession, batch: Mapping[str, Tensor], logits: np.ndarray
) -> np.ndarray:
    """What a task type scores of a batch: of logits, or of text that the exported model writes."""
    # What is kept of logits asks no model.
    writer: Any = _Writer(session) if isinstance(session, TextToTextSession) else None
    return as_array(task.kind.compact_outputs(writer, batch, torch.from_numpy(logits)))
