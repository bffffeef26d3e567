"""The gate: an exported file is scored on the dev rows by its own runtime, next to the torch model.

The torch model runs once over the rows; every file that is tried is then held against its outputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedModel

from limbeck.evaluation import class_predictions, classification, model_outputs
from limbeck.runtimes.manifest import GateMeasure, GateRowsFacts, LogitParity
from limbeck.runtimes.sessions import GraphSession
from limbeck.scoring.scored_model import EncodedSplit, LoadedSplit
from limbeck.tasks import Results, Task, as_array, join

# Logits of more numbers than this are compared on the first rows only (a vocabulary's are large).
_KEPT_NUMBERS = 30_000_000

Step = Callable[[int], None]
"""Called with the number of rows that a batch brought further."""


@dataclass(frozen=True)
class TorchReference:
    """The torch model's outputs on the gate's rows, which every file that is tried is held against.

    Attributes:
        results: its scores and predictions.
        compact_outputs: what its task type keeps of each row.
        logits: by batch, its logits on the first batches.
        batch_size: rows of a batch.
    """

    results: Results
    compact_outputs: np.ndarray
    logits: list[np.ndarray]
    batch_size: int


def torch_reference(
    model: PreTrainedModel, rows: EncodedSplit, batch_size: int, step: Step
) -> TorchReference:
    """Run the torch model over the gate's rows, on CPU as the exported one."""
    model.eval().to("cpu")
    outputs, kept, numbers = [], [], 0
    for one in model_outputs.outputs_by_batch(model, rows.batches(batch_size), rows.task.kind):
        outputs.append(one.kept)
        logits = as_array(one.logits)
        # Also of logits that are not kept: a shorter last batch must not close the gap.
        numbers += logits.size
        if numbers <= _KEPT_NUMBERS:
            kept.append(logits)
        step(len(logits))
    joined = join(outputs)
    return TorchReference(rows.results(joined), joined, kept, batch_size)


def rows_facts(loaded: LoadedSplit, **own: int) -> GateRowsFacts:
    """The rows on which a model was measured, for the file next to it."""
    return GateRowsFacts(
        task=loaded.task.name,
        data=loaded.data,
        split=loaded.name,
        rows=len(loaded.rows),
        fingerprint=loaded.fingerprint,
        text_columns=list(loaded.text_columns),
        label_column=loaded.label_column,
        recipe=dict(loaded.recipe),
        **own,
    )


def measure(
    session: GraphSession, rows: EncodedSplit, reference: TorchReference, step: Step
) -> tuple[GateMeasure, np.ndarray]:
    """Score an exported model on the gate's rows and compare it with the torch model.

    Also returned: what its task type keeps of each row, as the reference has it.
    """
    outputs, differences = [], []
    batches = rows.batches(reference.batch_size)
    for number, one in enumerate(model_outputs.outputs_by_batch(session, batches, rows.task.kind)):
        outputs.append(one.kept)
        logits = as_array(one.logits)
        if number < len(reference.logits):
            real = rows.task.kind.counted_logits(one.batch, logits)
            differences.append(np.abs(logits - reference.logits[number])[real])
        step(len(logits))
    joined = join(outputs)
    results = rows.results(joined)
    found = GateMeasure(
        scores=dict(results.scores),
        torch_scores=dict(reference.results.scores),
        drop=float(reference.results.scores["primary"] - results.scores["primary"]),
        agreement=class_predictions.agreement(
            rows.task, reference.results.predictions, results.predictions
        ),
        recall=_recall(rows.task, reference.results, results),
        logits=_parity(differences, reference),
    )
    return found, joined


def cross_fitted(
    rows: EncodedSplit, reference: TorchReference, tried: Sequence[np.ndarray], max_drop: float
) -> dict[str, float | None] | None:
    """Scores of the file that the gate ships, on rows that did not choose it.

    The rows are split into two halves. Each half's outputs come from the file that the other half would have
    shipped: the first that loses at most `max_drop` points there, otherwise the last.

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

        def primary(outputs: np.ndarray, places: np.ndarray = theirs) -> float:
            return rows.results(outputs, places).scores["primary"]

        least = primary(reference.compact_outputs) - max_drop
        shipped = next((one for one in tried if primary(one) >= least), tried[-1])
        joined[ours] = shipped[ours]
    return dict(rows.results(joined).scores)


def _parity(differences: list[np.ndarray], reference: TorchReference) -> LogitParity | None:
    if not differences:
        return None
    flat = np.concatenate([part.reshape(-1) for part in differences])
    theirs = reference.logits[: len(differences)]
    return LogitParity(
        rows=sum(map(len, theirs)),
        largest_difference=float(flat.max()),
        mean_difference=float(flat.mean()),
        scale=float(np.concatenate([part.reshape(-1) for part in theirs]).std()),
    )


def _recall(task: Task, torchs: Results, exported: Results) -> dict[str, list[float]]:
    """Class → recall of both, 0 to 100, for classes that occur in the rows."""
    if not class_predictions.has_class_scores(task):
        return {}
    right = task.kind.class_ids(task, exported.predictions["label"])
    present = np.flatnonzero(right.any(axis=0)) if right.ndim == 2 else np.unique(right)
    recalls = []
    for one in (torchs, exported):
        given = task.kind.class_ids(task, one.predictions["prediction"])
        recalls.append(classification.by_class(right, given, len(task.labels))[1])
    return {task.labels[at]: [float(one[at]) for one in recalls] for at in present.tolist()}
