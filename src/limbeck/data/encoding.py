"""From text to token ids: each split is tokenised once, before the first epoch.

Between the loaded rows and the batches. Padding waits for the collator, so that a batch is only as
wide as its longest example.
"""

from __future__ import annotations

import json
from typing import Any

from datasets import Dataset, Value
from datasets.fingerprint import Hasher
from transformers import PreTrainedTokenizerBase

from limbeck.data.bars import progress_bars
from limbeck.data.tasks import Task
from limbeck.errors import LimbeckError, Problem
from limbeck.kinds.base import CUT, ROW


def encode(
    dataset: Dataset,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    *,
    progress: bool = False,
) -> tuple[Dataset, int]:
    """Tokenise a loaded split; returns it with how many examples lost text to `max_length`.

    The result has the tokenizer's columns, "index", and what the task's kind makes of its labels
    where the split has them: "labels" (int64, or float32 for regression) of a class, a list of them
    by token, or "start_positions" and "end_positions". `progress` shows a bar. The fingerprint
    depends on the rows, the task, the tokenizer and `max_length` alone, so a rerun finds its cache.

    Raises LimbeckError for missing columns, an empty split, a tokenizer that is not a fast one, or
    a `max_length` that leaves no room for text.
    """
    _check(dataset, task, tokenizer, max_length)

    def tokenize(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return task.kind.encode(task, tokenizer, max_length, rows)

    how = (task.name, task.kind.name, task.text_columns, task.labels)
    recipe = (dataset._fingerprint, how, describe_tokenizer(tokenizer), max_length)
    with progress_bars(progress):
        encoded = dataset.map(
            tokenize,
            batched=True,
            remove_columns=dataset.column_names,
            new_fingerprint=Hasher.hash(recipe),
            desc="Tokenising",
        )
        truncated = sum(encoded[CUT])
        encoded = encoded.remove_columns(CUT)
        if ROW in encoded.column_names:
            encoded = encoded.add_column("index", list(range(len(encoded))))
        if task.kind.constant and "labels" in encoded.column_names:
            kind = Value("float32" if task.regression else "int64")
            encoded = encoded.cast_column("labels", kind)
    return encoded, truncated


def describe_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """What decides the token ids, without the last call's truncation that a tokenizer carries."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    backend["truncation"] = backend["padding"] = None
    return json.dumps([backend, tokenizer.model_input_names, tokenizer.truncation_side])


def _check(
    dataset: Dataset, task: Task, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> None:
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
    if not tokenizer.is_fast:
        problems.append(
            Problem(
                f"{type(tokenizer).__name__} is not a fast tokenizer",
                "save the model with its tokenizer.json, or load it with AutoTokenizer",
            )
        )
    reserved = tokenizer.num_special_tokens_to_add(pair=len(task.text_columns) == 2)
    # The tokenizer itself would silently cut nothing.
    if max_length < reserved + len(task.text_columns):
        problems.append(
            Problem(
                f"max_length {max_length} leaves no room for text beside {reserved} special tokens",
                "raise max_length; 128 is usual for GLUE",
            )
        )
    if problems:
        raise LimbeckError(problems)
