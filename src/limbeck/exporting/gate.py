"""The gate: an exported file is scored on the dev rows by its own runtime, beside the torch model.

The torch model runs once over the rows; every file that is tried is then held against its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.metrics import recall_score
from torch import Tensor
from transformers import PreTrainedModel

from limbeck.activations import Request, capture
from limbeck.functional.labels import NO_LABEL
from limbeck.runtimes import GraphSession
from limbeck.runtimes.manifest import GateMeasure, LogitParity
from limbeck.scoring.exported_scores import compact_outputs_of_export
from limbeck.scoring.gate_rows import GateRows
from limbeck.tasks import Results, Task, as_array, join

# Logits of more numbers than this are compared on the first rows only (a vocabulary's are large).
_KEPT_NUMBERS = 30_000_000

Step = Callable[[int], None]
"""Called with the number of rows that a batch brought further."""


def _no_step(rows: int) -> None:
    del rows


@dataclass(frozen=True)
class TorchReference:
    """The torch model's outputs on the gate's rows, which every file that is tried is held against.

    Attributes:
        results: its scores and predictions.
        compact_outputs: what its task type keeps of each row.
        choices: by batch, its likeliest class at each real position; none of a regression.
        logits: by batch, its logits on the first batches.
        batch_size: rows of a batch.
    """

    results: Results
    compact_outputs: np.ndarray
    choices: list[np.ndarray | None]
    logits: list[np.ndarray]
    batch_size: int


def torch_reference(
    model: PreTrainedModel, rows: GateRows, batch_size: int = 32, step: Step = _no_step
) -> TorchReference:
    """Run the torch model over the gate's rows, on CPU as the exported one."""
    model.eval().to("cpu")
    outputs, choices, kept, numbers = [], [], [], 0
    with torch.no_grad():
        for batch in rows.batches(batch_size):
            logits = capture(model, batch, Request.of_logits()).logits
            assert logits is not None
            outputs.append(as_array(rows.task.kind.compact_outputs(model, batch, logits)))
            found = as_array(logits)
            choices.append(_choices(found, batch, rows.task))
            if numbers + found.size <= _KEPT_NUMBERS:
                numbers += found.size
                kept.append(found)
            step(len(found))
    return TorchReference(rows.results(outputs), join(outputs), choices, kept, batch_size)


def measure(
    session: GraphSession,
    rows: GateRows,
    reference: TorchReference,
    step: Step = _no_step,
) -> tuple[GateMeasure, np.ndarray]:
    """Score an exported model on the gate's rows and compare it with the torch model.

    Also returned: what its task type keeps of each row, as the reference has it.
    """
    outputs, alike, differences = [], [], []
    for number, batch in enumerate(rows.batches(reference.batch_size)):
        logits = session.logits(batch)
        outputs.append(compact_outputs_of_export(rows.task, session, batch, logits))
        ours, theirs = _choices(logits, batch, rows.task), reference.choices[number]
        if ours is not None and theirs is not None:
            alike.append(ours == theirs)
        if number < len(reference.logits):
            real = _real(batch, logits, written=rows.task.kind.classes_as_text)
            differences.append(np.abs(logits - reference.logits[number])[real])
        step(len(logits))
    results = rows.results(outputs)
    found = GateMeasure(
        scores=dict(results.scores),
        torch_scores=dict(reference.results.scores),
        drop=float(reference.results.scores["primary"] - results.scores["primary"]),
        agreement=_agreement(rows.task, alike, reference.results, results),
        recall=_recall(rows.task, reference.results, results),
        logits=_parity(differences, reference),
    )
    return found, join(outputs)


def cross_fitted(
    rows: GateRows, reference: TorchReference, tried: Sequence[np.ndarray], max_drop: float
) -> dict[str, float | None] | None:
    """Scores of what the gate ships, on rows that did not choose it.

    The rows fall into two halves. Of each half stand the outputs of the file that the other half would have
    shipped: the first that loses at most `max_drop` points there, else the last.

    Args:
        rows: the gate's.
        reference: the torch model's outputs on them.
        tried: outputs of every file that was measured, in that order.
        max_drop: points of the primary score.

    Returns:
        None of rows that cannot be halved.
    """
    halves = rows.halves()
    if halves is None:
        return None
    joined = tried[-1].copy()
    for ours, theirs in (halves, halves[::-1]):
        torchs = rows.primary_of(reference.compact_outputs, theirs)
        kept = (one for one in tried if torchs - rows.primary_of(one, theirs) <= max_drop)
        joined[ours] = next(kept, tried[-1])[ours]
    return dict(rows.results([joined]).scores)


def _agreement(
    task: Task, alike: Sequence[np.ndarray], torchs: Results, exported: Results
) -> float | None:
    """The share of choices that both make; of several classes a row, of rows with all of them alike."""
    if task.kind.several_classes:
        pairs = (np.array(one.predictions["prediction"]) for one in (torchs, exported))
        return float(np.equal(*pairs).all(axis=1).mean())
    return float(np.concatenate(alike).mean()) if alike else None


def _parity(differences: list[np.ndarray], reference: TorchReference) -> LogitParity | None:
    if not differences:
        return None
    flat = np.concatenate([part.reshape(-1) for part in differences])
    scale = np.concatenate(
        [part.reshape(-1) for part in reference.logits[: len(differences)]]
    ).std()
    return LogitParity(
        rows=sum(len(part) for part in reference.logits[: len(differences)]),
        largest_difference=float(flat.max()),
        mean_difference=float(flat.mean()),
        scale=float(scale),
    )


def _real(batch: Mapping[str, Tensor], logits: np.ndarray, *, written: bool = False) -> Any:
    """Index of the logits that count: padding's are nobody's; of written answers, the targets'."""
    if written:
        return batch["labels"].numpy() != NO_LABEL
    mask = batch.get("attention_mask")
    if logits.ndim < 3 or mask is None or mask.shape != logits.shape[:2]:
        return slice(None)
    return mask.numpy().astype(bool)


def _choices(logits: np.ndarray, batch: Mapping[str, Tensor], task: Task) -> np.ndarray | None:
    """The likeliest class by row, by labelled token, or of a span its start and end."""
    if task.kind.several_classes or task.kind.embeds:
        return None
    if logits.ndim == 2:
        return None if logits.shape[1] == 1 else logits.argmax(axis=1)
    labels = batch.get("labels")
    if labels is not None and labels.shape == logits.shape[:2]:
        return logits.argmax(axis=-1)[labels.numpy() != NO_LABEL]
    real = _real(batch, logits)
    masked = logits.copy()
    masked[~real] = -np.inf
    return masked.argmax(axis=1).reshape(-1)


def _recall(task: Task, torchs: Results, exported: Results) -> dict[str, list[float]]:
    """Class → recall of both, 0 to 100, for classes that stand in the rows."""
    if not task.labels or not task.kind.names_classes:
        return {}
    if task.kind.several_classes:
        return _recall_of_several(task, torchs, exported)
    right = _flat(exported.predictions["label"])
    given = [_flat(results.predictions["prediction"]) for results in (torchs, exported)]
    present = [number for number in range(len(task.labels)) if (right == number).any()]
    found = [100 * recall_score(right, one, labels=present, average=None) for one in given]
    return {
        task.labels[number]: [float(one[at]) for one in found] for at, number in enumerate(present)
    }


def _recall_of_several(task: Task, torchs: Results, exported: Results) -> dict[str, list[float]]:
    right = np.array(exported.predictions["label"])
    found = [
        100
        * recall_score(
            right, np.array(one.predictions["prediction"]), average=None, zero_division=0
        )
        for one in (torchs, exported)
    ]
    present = np.flatnonzero(right.any(axis=0)).tolist()
    return {task.labels[at]: [float(one[at]) for one in found] for at in present}


def _flat(values: Sequence[Any]) -> np.ndarray:
    return np.array(
        [item for value in values for item in (value if isinstance(value, list) else [value])]
    )
