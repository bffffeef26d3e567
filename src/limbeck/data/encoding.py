"""From rows to token ids or pixels: each split is encoded once, before the first epoch.

Between the loaded rows and the batches. Padding waits for the collator, so that a batch is only as
wide as its longest example.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from datasets import Dataset, Value
from datasets.fingerprint import Hasher

from limbeck.data.bars import progress_bars
from limbeck.support.errors import LimbeckError, Problem
from limbeck.tasks import Processor
from limbeck.tasks.rules import CUT, ROW
from limbeck.tasks.task import Task


def encode(
    dataset: Dataset,
    task: Task,
    tokenizer: Processor,
    max_length: int,
    *,
    progress: bool = False,
) -> tuple[Dataset, int]:
    """Encode a loaded split; returns it with how many examples lost text to `max_length`.

    The result has the tokenizer's columns (of images `pixel_values`, as bytes), "index", and what
    the task's kind makes of its labels where the split has them: "labels" (int64, or float32 for
    regression) of a class, a list of them by token, or "start_positions" and "end_positions".
    `progress` shows a bar. The fingerprint depends on the rows, the task, the tokenizer and
    `max_length` alone, so a rerun finds its cache.

    Raises LimbeckError for missing columns, an empty split, a tokenizer that is not a fast one, or
    a `max_length` that leaves no room for text.
    """
    _check(dataset, task, tokenizer, max_length)

    label = task.kind.label_feature(task)

    def tokenize(rows: dict[str, list[Any]]) -> dict[str, Any]:
        found: dict[str, Any] = dict(task.kind.encode(task, tokenizer, max_length, rows))
        if isinstance(label, Value) and "labels" in found:
            labels = np.asarray(found["labels"])
            # What does not fit is left to Arrow's own cast below, which refuses it.
            if np.can_cast(labels.dtype, label.dtype, "same_kind"):
                found["labels"] = labels.astype(label.dtype)
        return found

    how = (task.name, task.kind.name, task.text_columns, task.labels)
    recipe = (dataset._fingerprint, how, task.kind.reads.describe(tokenizer), max_length)
    with progress_bars(progress):
        encoded = dataset.map(
            tokenize,
            batched=True,
            remove_columns=dataset.column_names,
            new_fingerprint=Hasher.hash(recipe),
            desc="Encoding",
        )
        truncated = sum(encoded[CUT])
        encoded = encoded.remove_columns(CUT)
        if ROW in encoded.column_names:
            encoded = encoded.add_column("index", list(range(len(encoded))))
        if label is not None and encoded.features.get("labels", label) != label:
            encoded = encoded.cast_column("labels", label)
    return encoded, truncated


def _check(dataset: Dataset, task: Task, tokenizer: Processor, max_length: int) -> None:
    problems = []
    missing = [c for c in (*task.text_columns, "index") if c not in dataset.column_names]
    if missing:
        problems.append(
            Problem(
                f"task {task.name!r}: the data lack the column{'s' if len(missing) > 1 else ''} "
                f"{', '.join(missing)}",
                f"columns that are there: {', '.join(dataset.column_names)}",
            )
        )
    if len(dataset) == 0:
        problems.append(Problem(f"task {task.name!r}: the split is empty", "check the data"))
    problems += task.kind.reads.problems(tokenizer, max_length, len(task.text_columns))
    if problems:
        raise LimbeckError(problems)
